"""Approvals: a person's answer to an ask, or a grant given beforehand.

An approval turns exactly the asks it answers into allows. It lifts no deny, and it is never a
permission by itself: whoever hands it back has everything decided again from scratch.
"""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeAlias

import attrs

from toolscope._frozen import MAX_ARGUMENT_VALUES, FrozenDict, canonical_json, digest, freeze
from toolscope.errors import ApprovalError, ToolsetError
from toolscope.model._calls import InvalidArguments, ToolCall
from toolscope.model._scopes import UNKNOWN, Origin, Scope
from toolscope.model._tools import Provider, Tool


class Reach(StrEnum):
    """How far an approval goes.

    ``ONCE`` is one call. ``CHAT`` is every call in the chat it was given in, ``SUBTREE`` also those
    in all chats that tool calls spawned below it. None goes upwards, or into a side chat or a fork.
    """

    ONCE = "once"
    CHAT = "chat"
    SUBTREE = "subtree"


class AnyArguments(StrEnum):
    """The arguments of a grant that is for all of them. No arguments is something else."""

    ANY = "any"


def arguments_digest(arguments: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of arguments: key order is free, integers are exact, text is not normalised.

    Raises:
        ValueError: They are no JSON object. `InvalidArguments` have no digest.
    """
    if type(arguments) is InvalidArguments:
        raise ValueError(f"arguments that are invalid have no digest: {arguments.why}")
    return digest(freeze(arguments))


@attrs.frozen(kw_only=True, cache_hash=True)
class Answered:
    """One ask that an approval answers: by its plugin, rule, code and reason, all of them."""

    plugin: str
    rule: str | None = None
    code: str | None = None
    reason: str


ArgumentsBound: TypeAlias = AnyArguments | str | FrozenDict


def _bound(value: object) -> ArgumentsBound:
    if isinstance(value, Mapping):
        try:
            condition: FrozenDict = freeze(value, MAX_ARGUMENT_VALUES)
        except ValueError as error:
            raise ApprovalError(f"the condition of an approval is not JSON: {error}") from error
        return condition
    if isinstance(value, AnyArguments):
        return value
    if isinstance(value, str) and len(value) == _DIGEST_LENGTH:
        return value
    raise ApprovalError(
        f"the arguments of an approval are a {type(value).__name__}; allowed are AnyArguments.ANY, "
        "arguments_digest(...) of exactly these, or a condition (a mapping)"
    )


_DIGEST_LENGTH: Final = 64


def _reach(value: object) -> Reach:
    try:
        return Reach(value)  # type: ignore[arg-type]  # what is no member raises
    except ValueError:
        raise ApprovalError(
            f"the reach of an approval is {value!r}; allowed are 'once', 'chat' and 'subtree'"
        ) from None


def _true_or_false(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if type(value) is not bool:
        raise ApprovalError(
            f"{attribute.name} of an approval is {value!r}; allowed are True and False"
        )


def _text(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if not isinstance(value, str):
        raise ApprovalError(
            f"{attribute.name} of an approval is a {type(value).__name__}; allowed is text"
        )


def _moment(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    # NaN compares as neither before nor after, so an approval that ends then would never end.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_finite(value):
        raise ApprovalError(
            f"{attribute.name} of an approval is no finite number of seconds; allowed are seconds "
            "since the epoch, or None"
        )


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


_text_or_none = attrs.validators.optional(_text)
_moment_or_none = attrs.validators.optional(_moment)


@attrs.frozen(kw_only=True, cache_hash=True)
class Approval:
    """An answer to an ask, or a standing grant (an approval without call id).

    Attributes:
        allow: Whether the person allows it. A refusal settles the call it names.
        chat: The chat it was given in.
        call_id: The call it answers; None makes it a standing grant.
        provider, own_name, definition: The tool, and the `Tool.digest` it had when it was shown.
        arguments: A digest of exactly these, `AnyArguments.ANY`, or a condition kept as data.
        answers: The asks it answers; None (a grant given beforehand) answers every ask about the
            tool.
        reach: How far it goes. An answer with a wider reach than ``ONCE`` is a grant as well.
        by, at: Who gave it, and when (seconds since the epoch).
        expires: When it ends (seconds since the epoch), None = never.
        reason: What the person said, for the model.

    Raises:
        ApprovalError: A part is not well formed, or it is a refusal of more than one call.
    """

    allow: bool = attrs.field(validator=_true_or_false)
    chat: str | None = attrs.field(default=None, validator=_text_or_none)
    call_id: str | None = attrs.field(default=None, validator=_text_or_none)
    provider: Provider
    own_name: str = attrs.field(validator=_text)
    definition: str = attrs.field(validator=_text)
    arguments: ArgumentsBound = attrs.field(converter=_bound)
    answers: frozenset[Answered] | None = None
    reach: Reach = attrs.field(default=Reach.ONCE, converter=_reach)
    by: str | None = attrs.field(default=None, validator=_text_or_none)
    at: float | None = attrs.field(default=None, validator=_moment_or_none)
    expires: float | None = attrs.field(default=None, validator=_moment_or_none)
    reason: str | None = attrs.field(default=None, validator=_text_or_none)

    def __attrs_post_init__(self) -> None:
        if not self.allow and (self.call_id is None or self.reach is not Reach.ONCE):
            raise ApprovalError(
                "a refusal is of one call, which it names; what is never allowed is a rule"
            )
        if (
            self.call_id is not None
            and self.reach is Reach.ONCE
            and (self.arguments is AnyArguments.ANY or isinstance(self.arguments, FrozenDict))
        ):
            raise ApprovalError("an answer to one call binds exactly its arguments")

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of all of it: names this approval where it is remembered as spent."""
        return digest(self.to_json())

    @property
    def is_one_time_grant(self) -> bool:
        """Whether the first call that it answers spends it."""
        return self.call_id is None and self.reach is Reach.ONCE

    def elsewhere(self, call: ToolCall, tool: Tool, scope: Scope) -> str | None:
        """Why this approval is for another chat, call or tool; None where it is for these.

        A refusal is of its call, whatever became of the call's tool and arguments meanwhile.
        """
        if self.call_id is not None and self.reach is Reach.ONCE:
            if self.chat != call.chat:
                return "it was given in another chat"
            if self.call_id != call.id:
                return "it answers another call"
            if not self.allow:
                return None
        elif not self._reaches(call, scope):
            return "it does not reach this chat"
        if (self.provider, self.own_name) != (tool.provider, tool.own_name):
            return "it is about another tool"
        return None

    def mismatch(self, call: ToolCall, tool: Tool, scope: Scope) -> str | None:
        """Why this approval does not fit this call; None where it does. Time is not looked at."""
        why = self.elsewhere(call, tool, scope)
        if why is not None or not self.allow:
            return why
        if self.definition != tool.digest:
            return "the tool's definition has changed since"
        if isinstance(self.arguments, FrozenDict):
            return "its condition on the arguments was not evaluated"
        if type(call.arguments) is InvalidArguments:
            return "the arguments of the call are invalid"
        if self.arguments is not AnyArguments.ANY and self.arguments != call.arguments_digest:
            return "it is for other arguments"
        return None

    def _reaches(self, call: ToolCall, scope: Scope) -> bool:
        if self.chat == call.chat:
            return True
        if self.reach is not Reach.SUBTREE:
            return False
        # Up from the call's chat, as long as every chat on the way was spawned by a tool.
        origin = scope.origin
        for above, chat in zip(scope.ancestry, call.ancestors, strict=False):
            if origin is not Origin.TOOL or above is UNKNOWN or chat is None:
                return False
            if chat == self.chat:
                return True
            origin = above.origin
        return False

    # ----------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back, in another process or a later version."""
        arguments = self.arguments
        saved: dict[str, Any] = {
            "schema": _SCHEMA,
            "allow": self.allow,
            "provider": str(self.provider),
            "own_name": self.own_name,
            "definition": self.definition,
            "arguments": {"condition": arguments}
            if isinstance(arguments, FrozenDict)
            else {"any": True}
            if arguments is AnyArguments.ANY
            else {"digest": arguments},
            "reach": str(self.reach),
        }
        if self.answers is not None:
            saved["answers"] = sorted(
                (
                    {k: v for k, v in attrs.asdict(one, recurse=False).items() if v is not None}
                    for one in self.answers
                ),
                key=canonical_json,
            )
        for name in _OPTIONAL:
            if (value := getattr(self, name)) is not None:
                saved[name] = value
        return saved

    @classmethod
    def from_json(cls, saved: object) -> "Approval":
        """The approval that `to_json` gave.

        Raises:
            ApprovalError: It is no such object, or of a schema that this version does not read. No
                part of it counts then.
        """
        if not isinstance(saved, Mapping):
            raise ApprovalError(f"a saved approval is a {type(saved).__name__}, not a JSON object")
        if saved.get("schema") != _SCHEMA:
            raise ApprovalError(
                f"a saved approval has schema {saved.get('schema')!r}; this version reads "
                f"{_SCHEMA}; ask again"
            )
        if unknown := sorted(map(str, saved.keys() - _MEMBERS)):
            raise ApprovalError(f"a saved approval has unknown members {unknown}; ask again")
        try:
            return cls(
                allow=saved["allow"],
                provider=Provider.parse(_typed(saved, "provider", str)),
                own_name=_typed(saved, "own_name", str),
                definition=_typed(saved, "definition", str),
                arguments=_saved_arguments(saved["arguments"]),
                answers=_saved_answers(saved["answers"]) if "answers" in saved else None,
                reach=_typed(saved, "reach", str),
                **{
                    name: _typed(saved, name, _OPTIONAL[name])
                    for name in _OPTIONAL
                    if name in saved
                },
            )
        except (KeyError, TypeError, ValueError, ToolsetError) as error:
            raise ApprovalError(f"a saved approval cannot be read ({error}); ask again") from error


_SCHEMA: Final = 1
_OPTIONAL: Final[Mapping[str, Any]] = {
    "chat": str, "call_id": str, "by": str, "at": (int, float), "expires": (int, float),
    "reason": str,
}  # fmt: skip
_MEMBERS: Final = frozenset(
    {
        "schema", "allow", "provider", "own_name", "definition", "arguments", "answers", "reach",
        *_OPTIONAL,
    }
)  # fmt: skip


def _typed(saved: Mapping[str, Any], name: str, kind: Any) -> Any:
    value = saved[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"its {name} is a {type(value).__name__}")
    return value


def _saved_arguments(saved: object) -> ArgumentsBound:
    match saved:
        case {"any": True, **rest} if not rest:
            return AnyArguments.ANY
        case {"digest": str(digest), **rest} if not rest and len(digest) == _DIGEST_LENGTH:
            return digest
        case {"condition": Mapping() as condition, **rest} if not rest:
            return _bound(condition)
    raise TypeError("its arguments are none of any, digest and condition")


def _saved_answers(saved: object) -> frozenset[Answered]:
    if not isinstance(saved, (list, tuple)):
        raise TypeError("its answers are no array")
    for one in saved:
        if not isinstance(one, Mapping) or not all(isinstance(part, str) for part in one.values()):
            raise TypeError("one of its answers is no object of texts")
    return frozenset(Answered(**one) for one in saved)
