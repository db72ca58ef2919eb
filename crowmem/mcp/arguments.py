"""The arguments of the tools: one table that is both the schema clients see and the check of what they send.

An argument that is wrong gets the same error as in the library: its name, its value and what is allowed. Clients are
told the bounds beforehand, and null counts as left out, since many send it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from crowmem.errors import InvalidValue
from crowmem.transcript import MODES
from crowmem.values import check_choice, check_range, check_text, check_texts, time_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST = 200  # sessions or messages of one answer
FURTHEST = 10_000  # passed over before it; each has to be read
MOST_CONTEXT = 20
QUERY_CHARACTERS = 10_000  # a search reads 64 words of it
INTEGER = 2**31 - 1
_AGES = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a tool.

    Attributes:
        name: its name.
        kind: its JSON type.
        about: what clients are told of it.
        default: what it is when left out; None is not told.
        low: of an integer, the smallest.
        high: of an integer, the largest.
        choices: of a text, what it may be.
        needed: whether it may not be left out.
    """

    name: str
    kind: str
    about: str
    default: Any = None
    low: int = 0
    high: int = INTEGER
    choices: tuple[str, ...] = ()
    needed: bool = False

    def schema(self) -> dict[str, Any]:
        """Its JSON schema."""
        found: dict[str, Any] = {"type": self.kind, "description": self.about}
        if self.kind == "integer":
            found |= {"minimum": self.low, "maximum": self.high}
        if self.kind == "array":
            found["items"] = {"type": "string"}
        if self.choices:
            found["enum"] = list(self.choices)
        if self.default is not None:
            found["default"] = self.default
        return found

    def read(self, value: Any) -> Any:
        """A value that was sent, checked.

        Raises:
            InvalidValue: it is none of what is allowed.
        """
        if self.kind == "integer":  # JSON has one kind of number, and some clients write 10 as 10.0
            whole = isinstance(value, float) and value.is_integer()
            return check_range(self.name, int(value) if whole else value, self.low, self.high)
        if self.kind == "boolean" and not isinstance(value, bool):
            raise InvalidValue(f"{self.name} is of type {type(value).__name__}, expected true or false")
        if self.kind == "array":
            return check_texts(self.name, value)
        if self.choices:
            return check_choice(self.name, value, self.choices)
        return _READERS.get(self.name, _as_it_is)(self.name, value)


def _as_it_is(_name: str, value: Any) -> Any:
    return value


def _query(name: str, value: Any) -> str:
    """Any text: what no column could hold is only looked for, and not found."""
    if not isinstance(value, str):
        raise InvalidValue(f"{name} is of type {type(value).__name__}, expected text")
    if len(value) > QUERY_CHARACTERS:
        raise InvalidValue(
            f"{name} has {len(value):,} characters, at most {QUERY_CHARACTERS:,} are allowed: "
            "send the few words you look for"
        )
    return value


def _moment(name: str, value: Any) -> str:
    """A time, or how long ago, as the store writes times."""
    if isinstance(value, str) and value[-1:] in _AGES and value[:-1].isascii() and value[:-1].isdecimal():
        try:
            return time_text(name, datetime.now(UTC) - timedelta(**{_AGES[value[-1]]: int(value[:-1])}))
        except (OverflowError, ValueError):
            raise InvalidValue(f"{name} is {value[:20]!r}, which is before the year 1") from None
    if isinstance(value, str) and not value.strip():
        raise InvalidValue(f"{name} is blank, expected a time such as 2026-01-31 or 7d: leave it out for no limit")
    return time_text(name, value)


def _name(name: str, value: Any) -> str:
    return check_text(name, value)


def _folder(name: str, value: Any) -> str:
    return check_text(name, value, limit=1 << 20)


_READERS = {
    "query": _query,
    "after": _moment,
    "before": _moment,
    "session_id": _name,
    "cwd": _folder,
}

_QUERY = Argument(
    "query",
    "string",
    'Words to look for, best matches first; a message need not hold all of them. "Quotes" make a phrase, a trailing * '
    "a prefix. Leave it out to browse instead.",
)
_MODE = Argument(
    "mode",
    "string",
    "How much of each message: conversation (what user and assistant said; the default), with_thinking (also the "
    "assistant's thoughts), with_tools (also tool calls and their results), full (everything, system prompts and "
    "text that programs inserted too). A search looks at the same.",
    choices=tuple(MODES),
)
_AFTER = Argument(
    "after", "string", "Only what is later: ISO 8601 (UTC without an offset), or how long ago: 12h, 7d, 4w."
)
_BEFORE = Argument("before", "string", "Only what is earlier; written as after.")
_OFFSET = Argument("offset", "integer", "How many to pass over: next_offset of the answer before.", 0, 0, FURTHEST)
_FORKS = Argument("include_forks", "boolean", "Also what forks of sessions added (side branches).", False)
_LIMIT = Argument("limit", "integer", "Most messages (default: 10 of a search, 1 when browsing).", None, 1, MOST)

LIST_SESSIONS = (
    Argument("limit", "integer", "Most sessions.", 20, 1, MOST),
    _OFFSET,
    Argument("include_forks", "boolean", "Count forks too, and list sessions that have nothing else.", False),
    Argument("cwd", "string", "Only sessions that worked in exactly this folder (absolute path)."),
)
QUERY_MEMORY = (
    _QUERY,
    _MODE,
    _LIMIT,
    _OFFSET,
    Argument("roles", "array", "Only messages with one of these roles, such as user, assistant, tool."),
    _AFTER,
    _BEFORE,
    _FORKS,
    Argument("cwd", "string", "Only sessions that worked in exactly this folder; for searches."),
)
QUERY_SESSION = (
    Argument("session_id", "string", "The session: its id, or the beginning of one.", needed=True),
    _QUERY,
    Argument("agent_idx", "integer", "Only the session's agent of this number; compaction begins a new one.", low=1),
    _MODE,
    Argument(
        "order",
        "string",
        "asc (oldest first) or desc (newest first). Browsing begins with the newest unless told otherwise; a search "
        "gives its best matches best first unless told otherwise.",
        choices=("asc", "desc"),
    ),
    Argument("context", "integer", "Also so many messages before and after each message found.", 0, 0, MOST_CONTEXT),
    _AFTER,
    _BEFORE,
    _LIMIT,
    _OFFSET,
    _FORKS,
    Argument(
        "message_id",
        "integer",
        "Only this message (with its context): to read around it, or a long one on.",
        low=1,
        high=2**63 - 1,
    ),
    Argument("from_character", "integer", "With message_id: where in its text to begin.", 0),
)


def input_schema(arguments: Sequence[Argument]) -> dict[str, Any]:
    """The JSON schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": {one.name: one.schema() for one in arguments},
        "required": [one.name for one in arguments if one.needed],
        "additionalProperties": False,
    }


def read(arguments: Sequence[Argument], sent: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call: what was sent, checked, and the defaults of the rest.

    Raises:
        InvalidValue: one is wrong, unknown or missing.
    """
    names = [one.name for one in arguments]
    if unknown := [name for name in sent if name not in names]:
        raise InvalidValue(f"there is no argument {unknown[0][:80]!r}: this tool takes {', '.join(names)}")
    found = {}
    for one in arguments:
        value = sent.get(one.name)
        if value is None and one.needed:
            raise InvalidValue(f"{one.name} is missing")
        found[one.name] = one.default if value is None else one.read(value)
    return found
