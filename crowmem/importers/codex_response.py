"""One response of the model in a Codex rollout, put together from its items."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crowmem.importers import chat
from crowmem.importers.codex_items import call, content, reasoning

if TYPE_CHECKING:
    from crowmem.importers.items import Turn


@dataclass(slots=True)
class Response:
    """A response, and what waits behind it until its tokens are known."""

    turn: Turn
    offset: int  # of its first line
    line_before: int
    state: dict[str, Any]  # of the reader when the response began
    reasoning: list[str] = field(default_factory=list)
    content: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[Turn] = field(default_factory=list)
    drawn: list[Turn] = field(default_factory=list)  # pictures that the response itself made
    complete: bool = False  # its tokens are known

    def is_followed_by(self, kind: str) -> bool:
        """Whether an item of a kind begins the next response: a response thinks first, and speaks once."""
        if self.complete or self.outputs:
            return True
        return (kind == "reasoning" and bool(self.content or self.calls)) or (kind == "message" and bool(self.content))

    def add(self, item: dict[str, Any], kind: str) -> dict[str, Any] | None:
        """Take an item; a call is given back."""
        self.turn.parts += 1
        if kind == "reasoning":
            self.reasoning += reasoning(item)
        elif kind == "message":
            found = content(item.get("content"))
            self.content += [{"type": "text", "text": found}] if isinstance(found, str) else found or []
        else:
            self.calls.append(call(item, kind))
            return self.calls[-1]
        return None

    def message(self) -> dict[str, Any]:
        """The response as a message."""
        return chat.assistant(chat.simplest(self.content), self.reasoning, self.calls)
