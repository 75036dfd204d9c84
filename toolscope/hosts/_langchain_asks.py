"""How a person is asked about one call: LangGraph's interrupt, in LangChain's own form."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from langchain.agents.middleware.human_in_the_loop import (
    ApproveDecision,
    RejectDecision,
    ToolApprovalRequest,
)
from langgraph.types import interrupt
from pydantic import Discriminator

from toolscope.hosts._point import EnforcementPoint
from toolscope.model import Answered, thaw
from toolscope.verdicts import Decision

__all__ = ["Person", "Questions"]

Questions: TypeAlias = list[tuple[frozenset[Answered], Mapping[str, Any]]]
"""The questions that were put about one call: the asks, and the arguments that were shown."""

_ANSWER: Any = Annotated[ApproveDecision | RejectDecision, Discriminator("type")]


class Person:
    """Asks a person about one call by interrupting the run, which starts the task anew.

    LangGraph gives a task's answers back in order and does not say to what. ``questions`` are the
    ones that were put in this process, so an answer to a question that has changed since is passed
    over and the new one is put. In a process that did not put them, an answer counts for what is
    asked now.
    """

    def __init__(self, point: EnforcementPoint, questions: Questions, call_id: str) -> None:
        self._point = point
        self._questions = questions
        self._call_id = call_id
        self._put = 0

    def answer(self, decision: Decision) -> None:
        """Takes the person's answer to this decision; interrupts the run while there is none."""
        call = decision.call
        asked = (frozenset(one.key for one in decision.verdicts), call.arguments)
        value = ToolApprovalRequest(
            type="tool_approval",
            tool_call_id=self._call_id,
            name=call.name,
            args=thaw(call.arguments),
            description="; ".join(dict.fromkeys(one.verdict.reason for one in decision.verdicts)),
        )
        while True:  # ends: where the answers end, `interrupt` raises
            if self._put == len(self._questions):
                self._questions.append(asked)
            question = self._questions[self._put]
            self._put += 1
            answer = interrupt(value, response_schema=_ANSWER)
            if question == asked:
                break
        allow = answer["type"] == "approve"
        self._point.answered(decision, allow=allow, reason=answer.get("message"))
