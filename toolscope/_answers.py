"""Makes approvals: a person's answer to an ask, and a grant given beforehand."""

from collections.abc import Mapping
from typing import Any

from toolscope.errors import ApprovalError
from toolscope.model import AnyArguments, Approval, Reach, Tool, arguments_digest
from toolscope.verdicts import Decision, Effect

__all__ = ["answer_to", "grant_for"]


def answer_to(
    decision: Decision,
    *,
    allow: bool,
    by: str | None = None,
    at: float | None = None,
    expires: float | None = None,
    reason: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    reach: Reach = Reach.ONCE,
    bind: Mapping[str, Any] | AnyArguments | None = None,
) -> Approval:
    """A person's answer to the asks of an asking decision, for `CallLedger.answer`.

    ``arguments`` are the new arguments where the person edited them: the call comes back with
    those. With a wider ``reach`` than ``ONCE`` the answer is a standing grant as well, of exactly
    these arguments unless ``bind`` says ``AnyArguments.ANY`` or gives a condition.

    Raises:
        ApprovalError: The decision asks nothing, its call has no id, the new arguments are no JSON
            object, or the parts contradict each other.
    """
    if decision.effect is not Effect.ASK or decision.tool is None:
        raise ApprovalError(f"the decision is {decision.effect}, so there is nothing to answer")
    if decision.call.id is None:
        raise ApprovalError("the call has no id, so an answer could not be told apart; give it one")
    final = decision.call.arguments if arguments is None else arguments
    return Approval(
        allow=allow,
        chat=decision.call.chat,
        call_id=decision.call.id,
        provider=decision.tool.provider,
        own_name=decision.tool.own_name,
        definition=decision.tool.digest,
        arguments=_exactly(final) if bind is None else bind,
        answers=frozenset(one.key for one in decision.verdicts),
        reach=reach,
        by=by,
        at=at,
        expires=expires,
        reason=reason,
    )


def grant_for(
    tool: Tool,
    *,
    chat: str | None,
    reach: Reach,
    arguments: Mapping[str, Any] | AnyArguments | None,
    condition: Mapping[str, Any] | None = None,
    by: str | None = None,
    at: float | None = None,
    expires: float | None = None,
) -> Approval:
    """A standing grant that a host gives beforehand: it answers every ask about the tool.

    ``arguments`` are exactly these, or ``AnyArguments.ANY``; ``{}`` is the call without arguments.
    With ``condition``, ``arguments`` is None. One-time grants that are otherwise equal are told
    apart by ``at``.

    Raises:
        ApprovalError: Neither or both of arguments and condition are given, or a part is not well
            formed.
    """
    if (arguments is None) == (condition is None):
        raise ApprovalError("a grant binds arguments or a condition on them: give one of the two")
    bound: Any = condition
    if arguments is not None:
        bound = arguments if isinstance(arguments, AnyArguments) else _exactly(arguments)
    return Approval(
        allow=True,
        chat=chat,
        provider=tool.provider,
        own_name=tool.own_name,
        definition=tool.digest,
        arguments=bound,
        reach=reach,
        by=by,
        at=at,
        expires=expires,
    )


def _exactly(arguments: Mapping[str, Any]) -> str:
    try:
        return arguments_digest(arguments)
    except ValueError as error:
        raise ApprovalError(f"an approval cannot bind these arguments: {error}") from error
