"""How a person is asked about one call: LangGraph's interrupt, in LangChain's own form."""

from collections.abc import Mapping
from enum import Enum
from threading import RLock
from typing import Annotated, Any, Final, TypeAlias

from langchain.agents.middleware.human_in_the_loop import (
    ApproveDecision,
    RejectDecision,
    ToolApprovalRequest,
)
from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt
from pydantic import Discriminator

from toolscope.hosts._point import EnforcementPoint
from toolscope.model import thaw
from toolscope.verdicts import Decision

__all__ = ["Person", "Questions"]

Asked: TypeAlias = tuple[object, ...]
"""What was shown: the call, the tool and its definition, the asks, and the arguments."""

_ANSWER: Any = Annotated[ApproveDecision | RejectDecision, Discriminator("type")]


class _Other(Enum):
    """An interrupt that is no open question of ours."""

    TOOLS = "the tool, or a run in it, put it"
    SPENT = "it was answered for an execution that has failed"


class Questions:
    """What interrupted one task, in order.

    LangGraph starts a task anew with each answer, gives the answers back in the order of the
    interrupts, and does not say to what. So the n-th answer is for the n-th entry here, whatever
    the task asks first by then.
    """

    def __init__(self) -> None:
        self._put: list[Asked | _Other] = []
        self._execution: object = None
        self._taken = 0
        self._lock: Final = RLock()

    def begin(self, execution: object) -> None:
        """Says which execution of the task goes on."""
        with self._lock:
            if execution is not self._execution:
                self._execution, self._taken = execution, 0

    def answer(self, asked: Asked, value: ToolApprovalRequest) -> Mapping[str, Any]:
        """The answer to this question; interrupts the task while there is none.

        Answers to anything else are passed over.
        """
        with self._lock:
            while True:  # ends: where the answers end, `interrupt` raises
                if self._taken == len(self._put):
                    self._put.append(asked)
                question = self._put[self._taken]
                self._taken += 1
                if question == asked:
                    answer: Mapping[str, Any] = interrupt(value, response_schema=_ANSWER)
                    return answer
                interrupt(value)

    def pass_over(self) -> None:
        """Takes the answers to questions of ours that are not asked any more.

        The tool would take them for answers to its own.
        """
        with self._lock:
            while self._taken < len(self._put) and self._put[self._taken] is not _Other.TOOLS:
                self._taken += 1
                try:
                    interrupt(None)
                except GraphInterrupt:  # nobody has answered it, and nobody needs to
                    return

    def interrupted(self) -> None:
        """Notes that the tool, or a run in it, has interrupted the task."""
        with self._lock:
            self._put.append(_Other.TOOLS)

    def failed(self, call_id: str) -> None:
        """Notes that the answers about this call are used up: a retry is asked about anew."""
        with self._lock:
            self._put = [
                _Other.SPENT if isinstance(one, tuple) and one[0] == call_id else one
                for one in self._put
            ]


class Person:
    """Asks a person about one call by interrupting the run, which starts the task anew.

    ``questions`` are the ones of the task that were put in this process. In a process that did not
    put them, an answer counts for what is asked now.
    """

    def __init__(self, point: EnforcementPoint, questions: Questions, call_id: str) -> None:
        self._point = point
        self._questions = questions
        self._call_id = call_id

    def answer(self, decision: Decision) -> None:
        """Takes the person's answer to this decision; interrupts the run while there is none."""
        call, tool = decision.call, decision.tool
        asked = (
            self._call_id,
            None if tool is None else (tool.identity, tool.digest),
            frozenset(one.key for one in decision.verdicts),
            call.arguments_digest,
        )
        value = ToolApprovalRequest(
            type="tool_approval",
            tool_call_id=self._call_id,
            name=call.name,
            args=thaw(call.arguments),
            description="; ".join(dict.fromkeys(one.verdict.reason for one in decision.verdicts)),
        )
        answer = self._questions.answer(asked, value)
        allow = answer["type"] == "approve"
        self._point.answered(decision, allow=allow, reason=answer.get("message"))
