"""One agent of a Claude Code session: its reply that is not complete yet, and the results that wait for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crowmem.importers import anthropic, chat

if TYPE_CHECKING:
    from crowmem.importers.items import Item, Turn

_RECENT = 4  # replies that are remembered, should one be continued after a prompt
_TOOLS = 256  # calls whose tool name is remembered for their results
_CUT = 1000  # characters by which a full output must exceed what the model saw to take its place


@dataclass(slots=True)
class Reply:
    """A reply whose last block may not have been read yet."""

    turn: Turn
    offset: int  # of its first line
    blocks: list[dict[str, Any]] = field(default_factory=list)
    usage: Any = None  # of its newest line
    emitted: int = 0  # blocks when it was given out last


@dataclass(slots=True)
class Chain:
    """What is held of one agent; what is complete goes out by ``out``."""

    out: list[Item]
    last_line: int = 0  # of its newest record
    open: Reply | None = None
    held: list[Turn] = field(default_factory=list)  # results that came while the reply was open
    recent: dict[str, Reply] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)  # call id → tool name, of recent replies

    def goes_on(self, reply_id: str, message: dict[str, Any]) -> bool:
        """Take a line of the reply that is open; False when it is of another one."""
        reply = self.open
        if reply is None or self.recent.get(reply_id) is not reply:
            return False
        self._take(reply, message)
        return True

    def add(self, reply_id: str, turn: Turn, offset: int, message: dict[str, Any]) -> None:
        """Take the first line of a reply, or one of a reply that was left; the one that was open is given out."""
        self.close()
        self.open = reply = self.recent.pop(reply_id, None) or Reply(turn, offset)
        self.recent[reply_id] = reply
        while len(self.recent) > _RECENT:
            del self.recent[next(iter(self.recent))]
        self._take(reply, message)

    def _take(self, reply: Reply, message: dict[str, Any]) -> None:
        """Take the blocks that the reply has not yet: a resumed session writes old replies again."""
        new = [block for block in anthropic.blocks_of(message.get("content")) if block not in reply.blocks]
        if new:
            reply.blocks += new
            reply.usage = message.get("usage") or reply.usage
            reply.turn.model = chat.text(message.get("model"))
            for call_id, name in anthropic.call_names(new):
                self.tools[call_id] = name
                if len(self.tools) > _TOOLS:
                    del self.tools[next(iter(self.tools))]

    def answer(self, turn: Turn, block: dict[str, Any], full: Any) -> None:
        """Take a tool's result; it comes after the reply that is open."""
        message = anthropic.result(block, self.tools)
        if isinstance(message["content"], str):
            message["content"] = _uncut(message["content"], full)
        made = turn.saying(message, (_result_key(message),))
        if self.open is None:
            self.out.append(made)
        else:
            self.held.append(made)

    def close(self) -> None:
        """Give out the open reply and the results that waited for it."""
        self.emit()
        self.open = None

    def emit(self) -> None:
        """Give out the open reply as it is now, and leave it open: it may still grow."""
        reply = self.open
        if reply is None:
            return
        if len(reply.blocks) > reply.emitted:
            message = anthropic.assistant(reply.blocks)
            if not chat.is_empty(message):  # a reply may begin with a block of white space
                reply.emitted = len(reply.blocks)
                reply.turn.usage = anthropic.usage(reply.usage)
                self.out.append(reply.turn.saying(message, reply.turn.keys, parts=reply.emitted))
        if self.held:
            self.out += self.held
            self.held.clear()


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
