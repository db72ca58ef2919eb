"""Inspect: evaluation logs, ``.json`` or ``.eval`` (a zip of JSON files). Each sample of each epoch is a session.

Long strings stand elsewhere in the sample, named ``attachment://<hash>``; they are put back.
"""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any

from crowmem.importers import chat
from crowmem.importers.document import ELEMENT_LIMIT, members
from crowmem.importers.guard import guarded
from crowmem.importers.items import MAIN, Item, Mark, SessionFacts, Skip, Turn
from crowmem.importers.places import Format

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from crowmem.importers.source import Head, Source

_ATTACHMENT = "attachment://"


def sniff(head: Head) -> bool:
    """A log with an evaluation and its plan, or a zip with the parts of one."""
    if head.raw.startswith(b"PK\x03\x04"):
        try:
            with zipfile.ZipFile(head.path) as archive:
                names = archive.namelist()
        except (zipfile.BadZipFile, OSError):
            return False
        return any(name in ("header.json", "_journal/start.json") for name in names)
    return isinstance(head.object.get("eval"), dict) and ("samples" in head.object or "plan" in head.object)


def read(source: Source) -> Iterator[Item]:
    """The turns of all samples."""
    with source.open() as stream:
        zipped = stream.read(4) == b"PK\x03\x04"
    if zipped:
        yield from _archive(source)
    else:
        about: dict[str, Any] = {}
        with source.open() as stream:
            for member in members(stream):
                if member.broken:
                    yield Skip(str(source.path), member.line, member.broken)
                elif member.key == "eval" and isinstance(member.value, dict):
                    about = member.value
                elif member.key == "samples" and isinstance(member.value, dict):
                    yield from guarded(_sample(source, about, member.value, member.line), source, member.line)
    yield Mark(0, 0)


def _archive(source: Source) -> Iterator[Item]:
    with zipfile.ZipFile(source.path) as archive:
        names = archive.namelist()
        header = "header.json" if "header.json" in names else "_journal/start.json"
        about = json.loads(archive.read(header)).get("eval") or {}
        for name in sorted(name for name in names if name.startswith("samples/") and name.endswith(".json")):
            if archive.getinfo(name).file_size > ELEMENT_LIMIT:
                yield Skip(str(source.path), 0, f"{name} is over {ELEMENT_LIMIT:,} bytes")
                continue
            try:
                sample = json.loads(archive.read(name))
            except (ValueError, RecursionError, zipfile.BadZipFile) as error:
                yield Skip(str(source.path), 0, f"{name} is not readable ({type(error).__name__})")
                continue
            yield from guarded(_sample(source, about, sample, 1), source, 1)


def _sample(source: Source, about: Mapping[str, Any], sample: dict[str, Any], line: int) -> Iterator[Item]:
    run = chat.text(about.get("run_id") or about.get("eval_id")) or source.path.stem
    session = f"{run}.{chat.text(sample.get('id'))}.{chat.text(sample.get('epoch'))}"
    output = sample.get("output")
    output = output if isinstance(output, dict) else {}
    model = chat.text(output.get("model") or about.get("model"))
    yield SessionFacts(session, f"{chat.text(about.get('task'))} {chat.text(sample.get('id'))}".strip(), model=model)
    transcript = sample.get("transcript")
    kept = sample.get("attachments") or (transcript.get("content") if isinstance(transcript, dict) else None) or {}
    found = [message for message in sample.get("messages") or [] if isinstance(message, dict)]
    last = max((n for n, message in enumerate(found) if message.get("role") == "assistant"), default=-1)
    created = chat.moment(sample.get("started_at") or about.get("created"))
    for number, message in enumerate(found):
        source.records += 1
        made = _message(_filled(message, kept))
        key = f"{number}:{chat.text(message.get('id')) or chat.digest(chat.compact(made))}"
        used = output.get("usage") if number == last else None
        usage = None
        if isinstance(used, dict):
            usage = chat.usage(used.get("input_tokens"), used.get("output_tokens"), used.get("total_tokens"))
        injected = made["role"] == "system"
        yield Turn(session, MAIN, (key,), made, line, created, usage, model, injected=injected)


def _filled(value: Any, kept: Mapping[str, Any]) -> Any:
    """A value with the strings that stand elsewhere put back; one that is missing stays named."""
    if isinstance(value, str):
        return kept.get(value.removeprefix(_ATTACHMENT), value) if value.startswith(_ATTACHMENT) else value
    if isinstance(value, list):
        return [_filled(inner, kept) for inner in value]
    return {key: _filled(inner, kept) for key, inner in value.items()} if isinstance(value, dict) else value


def _message(message: dict[str, Any]) -> dict[str, Any]:
    role, content = chat.text(message.get("role")), message.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    if blocks:
        content = chat.simplest([_block(block) for block in blocks if block.get("type") != "reasoning"])
    if role == "tool":
        error = message.get("error")
        text = content or (chat.text(error.get("message")) if isinstance(error, dict) else "")
        name = chat.text(message.get("function"))
        return chat.tool(message.get("tool_call_id"), text, name=name, is_error=bool(error))
    if role != "assistant":
        return {"role": role, "content": content}
    calls = [call for call in message.get("tool_calls") or [] if isinstance(call, dict)]
    made = [chat.tool_call(call.get("id"), call.get("function"), call.get("arguments")) for call in calls]
    thoughts = [chat.text(block.get("reasoning")) for block in blocks if block.get("type") == "reasoning"]
    return chat.assistant(content, thoughts, made)


def _block(block: dict[str, Any]) -> dict[str, Any]:
    """Inspect's picture block in OpenAI's spelling."""
    image = block.get("image")
    if block.get("type") == "image" and isinstance(image, str):
        made: dict[str, Any] = {"url": image}
        if block.get("detail"):
            made["detail"] = block["detail"]
        return {"type": "image_url", "image_url": made}
    return block


FORMAT = Format(name="inspect-ai", title="Inspect evaluation logs", sniff=sniff, read=read)
