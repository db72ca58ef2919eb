"""Claude Code: ``~/.claude/projects/<folder>/<session id>.jsonl``, one record a line.

One reply of the model is spread over several lines with one ``message.id``, a block each, and results of tools that ran
meanwhile may stand between them. A reply is therefore held open until another one, or a prompt, follows in the same
agent; the results come after it. Its usage is that of its last line. Order is the order of the file: timestamps go
backwards and the tree of ``parentUuid`` is broken in practice.

Keys: a reply goes by ``message.id``, a result by ``tool_use_id``, a prompt by its time and its blocks. Resuming a
session writes old turns again with new ``uuid`` but the same of these, so they are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowmem.importers import anthropic, chat
from crowmem.importers.claude_chain import Chain
from crowmem.importers.guard import ODD, odd
from crowmem.importers.items import MAIN, Item, Mark, SessionFacts, Skip, Turn
from crowmem.importers.lines import read_lines
from crowmem.importers.places import Format, below, folder
from crowmem.importers.wrappers import wrapper

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from crowmem.importers.source import Head, Source

_MARK_BYTES = 8 * 1024 * 1024
_IDLE_LINES = 2000  # an agent that said nothing for so long has completed its reply
_SIDES = 100  # records of side chains that are remembered for a later run
_MESSAGES = ("user", "assistant")


def sniff(head: Head) -> bool:
    """Records with a session and a type of this tool."""
    return any(is_record(record) for record in head.records)


def is_record(value: dict[str, Any]) -> bool:
    """Whether an object is a whole record, not a block or a message inside one."""
    kind = value.get("type")
    if kind in _MESSAGES:
        message = value.get("message")
        return isinstance(message, dict) and "content" in message and ("sessionId" in value or "uuid" in value)
    return (
        (kind in ("progress", "system", "attachment") and "sessionId" in value and "uuid" in value)
        or (kind == "summary" and "leafUuid" in value)
        or (kind == "file-history-snapshot" and "messageId" in value)
        or (kind in ("queue-operation", "custom-title", "ai-title", "last-prompt", "pr-link") and "sessionId" in value)
    )


def read(source: Source) -> Iterator[Item]:
    """The turns of one file."""
    reader = _Reader(source)
    marked = source.offset
    for line in read_lines(source, is_record):
        if isinstance(line, Skip):
            yield line
            continue
        try:
            reader.record(line.value, line.number, line.offset)
        except ODD as error:
            yield odd(source, line.number, error)
        if source.offset - marked > _MARK_BYTES:
            marked = source.offset
            reader.mark()
        if reader.out:
            yield from reader.out
            reader.out.clear()
    reader.titles()
    reader.mark()
    yield from reader.out


class _Reader:
    """Reads records into ``out``; a list, since generators would take a tenth of an import's time."""

    def __init__(self, source: Source) -> None:
        self.out: list[Item] = []
        self._source = source
        self._chains: dict[tuple[str, str], Chain] = {}
        # uuid → first uuid of its side chain, and its line
        self._sides: dict[str, tuple[str, int]] = {
            uuid: (root, line) for uuid, (root, line) in source.state.get("sides", {}).items()
        }
        self._last_side: str = source.state.get("last_side", "")
        self._titles: dict[str, tuple[int, str]] = {}

    def record(self, record: dict[str, Any], line: int, offset: int) -> None:
        """One record."""
        kind = record.get("type")
        message = record.get("message")
        if kind not in _MESSAGES or not isinstance(message, dict):
            self._other(record, line, offset)
            return
        self._source.records += 1
        session = chat.text(record.get("sessionId")) or self._source.path.stem
        aside = record.get("isSidechain") or record.get("agentId")
        agent = self._aside(record, line) if aside else MAIN
        chain = self._chains.get((session, agent))
        if chain is None:
            chain = self._chains[session, agent] = Chain(self.out)
        chain.last_line = line
        reply_id = ""
        if kind == "assistant":
            reply_id = chat.text(message.get("id")) or chat.text(record.get("uuid"))
            if chain.goes_on(reply_id, message):
                return
        turn = Turn(
            session,
            agent,
            (f"m:{reply_id}",),
            {},
            line,
            chat.moment(record.get("timestamp")),
            cwd=chat.text(record.get("cwd")),
            git_branch=chat.text(record.get("gitBranch")),
        )
        if kind == "user":
            self._user(chain, turn, record, message.get("content"))
        elif message.get("model") == "<synthetic>" or record.get("isApiErrorMessage"):
            chain.close()
            self.out += _prompt(turn, record, message.get("content"), "client-error")
        else:
            chain.add(reply_id, turn, offset, message)

    def mark(self) -> None:
        """Give out what is held, and the place to go on from: the first line of the oldest reply still open."""
        offset, line = self._source.offset, self._source.line
        for key, chain in list(self._chains.items()):
            chain.emit()
            if self._source.line - chain.last_line > _IDLE_LINES:
                del self._chains[key]
            elif chain.open is not None and chain.open.offset < offset:
                offset, line = chain.open.offset, chain.open.turn.line - 1
        self._source.state = self._side_state(line)
        self.out.append(Mark(offset, line))

    def titles(self) -> None:
        """Give out the titles found; one that the user gave wins."""
        self.out += [SessionFacts(session, title=title) for session, (_rank, title) in self._titles.items()]

    def _aside(self, record: dict[str, Any], line: int) -> str:
        """The sub-agent a record is of. Side chains of old versions have no id: the first record's uuid serves."""
        if agent := record.get("agentId"):
            return chat.text(agent)
        uuid, parent = chat.text(record.get("uuid")), record.get("parentUuid")
        root = self._sides.get(parent, (self._last_side, 0))[0] if isinstance(parent, str) else uuid
        self._last_side = root or uuid
        self._sides[uuid] = (self._last_side, line)
        return f"side-{self._last_side}"

    def _side_state(self, line: int) -> dict[str, Any]:
        """What tells the agents of records from a line on: a side chain goes on from its newest records before it."""
        before = [(uuid, side) for uuid, side in self._sides.items() if side[1] <= line]
        newest = {root: uuid for uuid, (root, _line) in before}
        kept = {**dict(before[-_SIDES:]), **{uuid: (root, line) for root, uuid in newest.items()}}
        return {"sides": kept, "last_side": before[-1][1][0] if before else ""}

    def _user(self, chain: Chain, turn: Turn, record: dict[str, Any], content: Any) -> None:
        rest = []
        for block in anthropic.blocks_of(content):
            if block.get("type") == "tool_result":
                chain.answer(turn, block, record.get("toolUseResult"))
            else:
                rest.append(block)
        if rest:
            chain.close()
            self.out += _prompt(turn, record, rest, _kind(record))

    def _other(self, record: dict[str, Any], line: int, offset: int) -> None:
        """Bookkeeping: titles are taken, queued prompts are prompts, everything else is counted."""
        kind = chat.text(record.get("type")) or "record without a type"
        session = chat.text(record.get("sessionId"))
        if kind in ("custom-title", "ai-title"):
            title = chat.text(record.get("customTitle") or record.get("aiTitle") or record.get("title"))
            rank = int(kind == "custom-title")
            if title and rank >= self._titles.get(session, (0, ""))[0]:
                self._titles[session] = (rank, title)
        attachment = record.get("attachment")
        if kind == "attachment" and isinstance(attachment, dict) and attachment.get("type") == "queued_command":
            message = {"role": "user", "content": attachment.get("prompt")}
            self.record(record | {"type": "user", "message": message}, line, offset)
            return
        self._source.passed[kind] += 1


def _prompt(turn: Turn, record: dict[str, Any], content: Any, kind: str) -> Iterator[Turn]:
    """A prompt as one or more turns: inserted blocks are set apart from what the user wrote."""
    time = chat.text(record.get("timestamp")) or chat.text(record.get("uuid"))
    for inserted, group in _grouped(anthropic.blocks_of(content), kind):
        simple = chat.simplest(group)
        message = chat.injected(inserted, simple) if inserted else {"role": "user", "content": simple}
        keys = tuple(dict.fromkeys(f"u:{chat.digest(time, _words(block))}" for block in group))
        yield turn.saying(message, keys, injected=bool(inserted))


def _kind(record: dict[str, Any]) -> str:
    """What the record itself says of a prompt that no user wrote."""
    if record.get("isCompactSummary"):
        return "compact-summary"
    origin = record.get("origin")
    if isinstance(origin, dict) and origin.get("kind") == "task-notification":
        return "notification"
    return "meta" if record.get("isMeta") or record.get("isVisibleInTranscriptOnly") else ""


def _grouped(blocks: list[dict[str, Any]], kind: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """Neighbouring blocks that were inserted for one reason, or written by the user."""
    groups: list[tuple[str, list[dict[str, Any]]]] = []
    for block in blocks:
        inserted = (wrapper(chat.text(block.get("text"))) if block.get("type") == "text" else "") or kind
        if groups and groups[-1][0] == inserted:
            groups[-1][1].append(block)
        else:
            groups.append((inserted, [block]))
    return groups


def _words(block: dict[str, Any]) -> str:
    return block["text"] if isinstance(block.get("text"), str) else chat.compact(block)


def discover(home: Path, env: Mapping[str, str]) -> list[Path]:
    """The projects folder of the user's configuration."""
    return below(folder(env, "CLAUDE_CONFIG_DIR", home / ".claude") / "projects")


FORMAT = Format(
    name="claude-code",
    title="Claude Code",
    sniff=sniff,
    read=read,
    discover=discover,
    resume=("claude", "--resume", "{session}"),
)
