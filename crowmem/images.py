"""Images inside messages: taken out before a message is stored, put back when it is wanted whole.

A message goes through its known places only: content lists, tool results, and the wrappers of the formats that agents
write. Where a block carries the bytes of an image, the block is replaced by a reference:

    {"type": "image_ref", "path": "<sha256hex>.png", "mime": "image/png"}

That form, crow's own, stands for ``{"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}``. Any
other block keeps what the reference cannot say: ``block``, the block without the image's characters, ``at``, the path
to where they belong, and ``encoding`` when they were not plain base64. So `hydrate` gives back the very message, letter
for letter: a block that could not be rebuilt exactly is left as it came. So is what is no image: nothing is ever lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from crowmem.blobs.encodings import ENCODINGS, decode
from crowmem.blobs.keys import BLOB_BYTES, check_key, image_key, is_key, mime_of, sniff

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Path = tuple[str | int, ...]
    Place = Sequence[str]
    Visit = Callable[[dict[str, Any], Path], Any]

REF = "image_ref"
DEPTH = 12  # how deep blocks are looked for; anything below stays as it is

_HOLDERS = frozenset(
    (
        *("content", "parts", "output", "result", "Ok", "message", "messages", "payload", "replacement_history"),
        *("toolUseResult", "tool_use_result", "state", "attachments", "functionResponse", "response"),
    )
)
# where blocks of a type may carry an image: a data URL, or base64 alone
_PLACES: dict[Any, tuple[tuple[str, ...], ...]] = {
    "image_url": (("image_url", "url"), ("image_url",)),  # OpenAI chat
    "input_image": (("image_url",), ("image_url", "url")),  # OpenAI responses
    "image": (("data",), ("source", "data"), ("image",), ("url",)),  # ACP and MCP, Anthropic, AI SDK
    "file": (("url",), ("data",)),  # AI SDK and opencode attachments
    "resource": (("resource", "blob"),),  # MCP embedded resources
    None: (("inlineData", "data"), ("inline_data", "data")),  # Gemini parts have no type
}
# items that are messages of their own: only the text is replaced, so that the item keeps its fields
_ITEMS = {"image_generation_call": "result", "image_generation_end": "result"}


class Extracted(NamedTuple):
    """A message without its images.

    Attributes:
        message: the message as it is stored; the given one itself when nothing was taken out.
        blobs: the images taken out, by key.
        keys: every key the stored message names, each once.
    """

    message: dict[str, Any]
    blobs: dict[str, bytes]
    keys: tuple[str, ...]


def extract(message: dict[str, Any], what: str = "message") -> Extracted:
    """Take the images out of a message; the given dict is not changed.

    Args:
        message: as its sender wrote it.
        what: how errors call it.

    Raises:
        InvalidValue: a reference in it names no key, such as a path; the error says where.
    """
    blobs: dict[str, bytes] = {}
    keys: dict[str, None] = {}

    def visit(block: dict[str, Any], path: Path) -> Any:
        if block.get("type") == REF:
            keys[check_key(block.get("path"), f"{what}{_shown(path)}.path")] = None
            return block
        found = _taken(block)
        if found is None:
            return None
        replaced, key, data = found
        keys[key] = None
        blobs[key] = data
        return replaced

    item = _taken_item(message)  # the message as a whole is never replaced, an item's result within it is
    stored = _walk(message if item is None else item[0], visit)
    if item is not None:
        blobs[item[1]] = item[2]
    return Extracted(stored, blobs, tuple(keys))


def references(message: dict[str, Any]) -> tuple[str, ...]:
    """The keys that a stored message names, each once. What is no key is passed over."""
    keys: dict[str, None] = {}

    def visit(block: dict[str, Any], path: Path) -> Any:
        if block.get("type") != REF:
            return None
        if is_key(block.get("path")):
            keys[block["path"]] = None
        return block

    _walk(message, visit)
    return tuple(keys)


def hydrate(message: dict[str, Any], blobs: Mapping[str, bytes]) -> dict[str, Any]:
    """Put images back where a message refers to them; the given dict is not changed.

    Args:
        message: as it is stored.
        blobs: the images by key; a reference to any other is left in place, and so is one that names no key.
    """

    def visit(block: dict[str, Any], path: Path) -> Any:
        if block.get("type") != REF:
            return None
        key = block.get("path")
        data = blobs.get(key) if type(key) is str and is_key(key) else None
        return block if data is None else _restored(block, data)

    return _walk(message, visit)


def remove(message: dict[str, Any], key: str, note: str) -> dict[str, Any]:
    """The message with a text block in place of each reference to one image; the given dict is not changed."""

    def visit(block: dict[str, Any], path: Path) -> Any:
        if block.get("type") != REF:
            return None
        if block.get("path") != key:
            return block
        return note if isinstance(block.get("block"), str) else {"type": "text", "text": note}

    return _walk(message, visit)


def _walk(message: dict[str, Any], visit: Visit) -> dict[str, Any]:
    """The message with each block that ``visit`` replaces, or the very message when there is none."""
    return _inside(message, visit, (), DEPTH)


def _inside(holder: dict[str, Any], visit: Visit, path: Path, depth: int) -> dict[str, Any]:
    changed: dict[str, Any] | None = None
    for key, value in holder.items():
        kind = type(value)
        if (kind is not list and kind is not dict) or key not in _HOLDERS:
            continue
        if kind is list and depth:
            new: Any = _elements(value, visit, (*path, key), depth - 1)
        elif kind is dict and (
            depth or value.get("type") == REF
        ):  # an item's reference stands one level below the item
            new = _element(value, visit, (*path, key), max(depth - 1, 0))
        else:
            continue
        if new is not value:
            changed = dict(holder) if changed is None else changed
            changed[key] = new
    return holder if changed is None else changed


def _elements(values: list[Any], visit: Visit, path: Path, depth: int) -> list[Any]:
    changed: list[Any] | None = None
    for index, value in enumerate(values):
        if type(value) is dict:
            new = _element(value, visit, (*path, index), depth)
            if new is not value:
                changed = list(values) if changed is None else changed
                changed[index] = new
    return values if changed is None else changed


def _element(block: dict[str, Any], visit: Visit, path: Path, depth: int) -> Any:
    replaced = visit(block, path)
    return _inside(block, visit, path, depth) if replaced is None else replaced


def _taken(block: dict[str, Any]) -> tuple[dict[str, Any], str, bytes] | None:
    """What stands for a block that carries an image, the image's key, and the image."""
    kind = block.get("type")
    if kind is not None and type(kind) is not str:
        return None
    for place in _PLACES.get(kind, ()):
        text = _text_at(block, place)
        found = None if text is None else _image(text)
        if found is not None:
            reference = _reference(block, place, *found)
            return reference, reference["path"], found[2]
    return _taken_item(block)


def _taken_item(item: dict[str, Any]) -> tuple[dict[str, Any], str, bytes] | None:
    """As `_taken`, for an item whose field is an image's base64 and nothing else."""
    kind = item.get("type")
    field = _ITEMS.get(kind) if type(kind) is str else None
    text = item.get(field) if field is not None else None
    found = _image(text) if type(text) is str else None
    if field is None or found is None:
        return None
    reference = _reference(None, (), *found)
    return {**item, field: reference}, reference["path"], found[2]


def _image(text: str) -> tuple[str, str, bytes] | None:
    """What `decode` finds, when it is an image that can be stored."""
    found = decode(text)
    if found is None or len(found[2]) > BLOB_BYTES or sniff(found[2]) is None:
        return None
    return found


def _reference(block: dict[str, Any] | None, at: Place, prefix: str, encoding: str, data: bytes) -> dict[str, Any]:
    key = image_key(data)
    mime = mime_of(key)
    reference: dict[str, Any] = {"type": REF, "path": key, "mime": mime}
    if encoding == "base64" and prefix == f"data:{mime};base64," and block is not None and _is_plain(block):
        return reference
    reference["block"] = prefix if block is None else _with_text(block, at, prefix)
    reference["at"] = list(at)
    if encoding != "base64":
        reference["encoding"] = encoding
    return reference


def _is_plain(block: dict[str, Any]) -> bool:
    """Whether a block has the fields, in their order, that a reference of crow's own form is put back with."""
    inner = block.get("image_url")
    return list(block) == ["type", "image_url"] and type(inner) is dict and list(inner) == ["url"]


def _restored(reference: dict[str, Any], data: bytes) -> Any:
    """What a reference stands for, or the reference itself when its parts do not fit together."""
    encoding = reference.get("encoding", "base64")
    encode = ENCODINGS.get(encoding) if type(encoding) is str else None
    if encode is None:
        return reference
    if "block" not in reference:
        mime = reference.get("mime")
        shown = mime if type(mime) is str else mime_of(reference["path"])
        return {"type": "image_url", "image_url": {"url": f"data:{shown};base64,{encode(data)}"}}
    block, at = reference["block"], reference.get("at")
    if type(block) is str and at == []:
        return block + encode(data)
    if type(block) is not dict or type(at) is not list or not at or not all(type(part) is str for part in at):
        return reference
    prefix = _text_at(block, at)
    return reference if prefix is None else _with_text(block, at, prefix + encode(data))


def _text_at(block: dict[str, Any], place: Place) -> str | None:
    value: Any = block
    for key in place:
        if type(value) is not dict:
            return None
        value = value.get(key)
    return value if type(value) is str else None


def _with_text(block: dict[str, Any], place: Place, text: str) -> dict[str, Any]:
    """A copy of the block, along the path only, with another text at its end."""
    copy = dict(block)
    copy[place[0]] = text if len(place) == 1 else _with_text(block[place[0]], place[1:], text)
    return copy


def _shown(path: Path) -> str:
    return "".join(f"[{part}]" if type(part) is int else f".{part}" for part in path)
