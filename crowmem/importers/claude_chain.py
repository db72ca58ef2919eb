"""One agent of a Claude Code session: its reply that is not complete yet, and the results that wait for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from crowmem.importers import anthropic, chat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowmem.importers.items import Turn

_RECENT = 4  # replies that are remembered, should one be continued after a prompt
_TOOLS = 256  # calls whose tool name is remembered for their results
_CUT = 1000  # characters by which a full output must exceed what the model saw to take its place


@dataclass(slots=True)
class Reply:
    """A reply whose last block may not have been read yet."""

    turn: Turn
    offset: int  # of its first line
    last_line: int
    blocks: list[dict[str, Any]] = field(default_factory=list)
    emitted: int = 0  # blocks when it was yielded last


@dataclass(slots=True)
class Chain:
    """What is held of one agent."""

    open: Reply | None = None
    held: list[Turn] = field(default_factory=list)  # results that came while the reply was open
    recent: dict[str, Reply] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)  # call id → tool name, of recent replies

    def add(self, reply_id: str, turn: Turn, offset: int, message: dict[str, Any]) -> Iterator[Turn]:
        """Take a line of a reply; a reply of another id that was open is yielded.

        Blocks that the reply has already are left out: a resumed session writes old replies again.
        """
        reply = self.recent.pop(reply_id, None) or Reply(turn, offset, turn.line)
        self.recent[reply_id] = reply
        while len(self.recent) > _RECENT:
            del self.recent[next(iter(self.recent))]
        if self.open is not reply:
            yield from self.close()
            self.open = reply
        reply.last_line = turn.line
        new = [block for block in anthropic.blocks_of(message.get("content")) if block not in reply.blocks]
        if new:
            reply.blocks += new
            reply.turn.model = chat.text(message.get("model"))
            reply.turn.usage = anthropic.usage(message.get("usage")) or reply.turn.usage
            self.tools.update(anthropic.call_names(new))
            while len(self.tools) > _TOOLS:
                del self.tools[next(iter(self.tools))]

    def answer(self, turn: Turn, block: dict[str, Any], full: Any) -> Iterator[Turn]:
        """Take a tool's result; it comes after the reply that is open."""
        message = anthropic.result(block, self.tools)
        if isinstance(message["content"], str):
            message["content"] = _uncut(message["content"], full)
        made = replace(turn, message=message, keys=(_result_key(message),))
        if self.open is None:
            yield made
        else:
            self.held.append(made)

    def close(self) -> Iterator[Turn]:
        """Yield the open reply and the results that waited for it."""
        yield from self.emit()
        self.open = None

    def emit(self) -> Iterator[Turn]:
        """Yield the open reply as it is now, and leave it open: it may still grow."""
        reply = self.open
        if reply is not None and len(reply.blocks) > reply.emitted:
            message = anthropic.assistant(reply.blocks)
            if not chat.is_empty(message):  # a reply may begin with a block of white space
                reply.emitted = len(reply.blocks)
                yield replace(reply.turn, message=message, parts=reply.emitted)
        held, self.held = self.held, []
        yield from held


def _uncut(content: str, full: Any) -> str:
    """The whole output where the model saw it cut: kept once, and searchable to its end."""
    if isinstance(full, dict):
        parts = [full.get("stdout"), full.get("stderr")]
        full = "\n".join(part for part in parts if isinstance(part, str) and part)
    return full if isinstance(full, str) and len(full) > len(content) + _CUT else content


def _result_key(message: dict[str, Any]) -> str:
    """Anthropic's call ids are unique; those of other models behind the same tool are used again."""
    call_id: str = message["tool_call_id"]
    own = call_id.startswith("toolu_")
    return f"t:{call_id}" if own else f"t:{call_id}:{chat.digest(chat.compact(message['content']))}"
