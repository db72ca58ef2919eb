"""Items of OpenAI's Responses API, in Codex rollouts and in recorded requests, as parts of chat messages."""

from __future__ import annotations

from typing import Any

from crowmem.importers import chat

CALLS = (
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "web_search_call",
    "tool_search_call",
    "image_generation_call",
    "mcp_call",
    "computer_call",
    "file_search_call",
    "code_interpreter_call",
)
OUTPUTS = (
    "function_call_output",
    "custom_tool_call_output",
    "local_shell_call_output",
    "tool_search_output",
    "computer_call_output",
)
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


def content(value: Any) -> Any:
    """Content as chat messages have it: text, or a list of blocks."""
    if not isinstance(value, list):
        return value if isinstance(value, str) else None if value is None else chat.compact(value)
    return chat.simplest([block for item in value if (block := _block(item)) is not None])


def _block(item: Any) -> dict[str, Any] | None:
    if not isinstance(item, dict):
        return {"type": "text", "text": chat.text(item)}
    kind = item.get("type")
    if kind in _TEXTS:
        return {"type": "text", "text": chat.text(item.get("text"))}
    if kind == "input_image":
        url = item.get("image_url")
        if not isinstance(url, str) or not url:
            return None
        image = {"url": url}
        if isinstance(item.get("detail"), str):
            image["detail"] = item["detail"]
        return {"type": "image_url", "image_url": image}
    return None if kind == "encrypted_content" else item


def reasoning(item: dict[str, Any]) -> list[str]:
    """The readable texts of a reasoning item: its content, else its summary. What is encrypted is opaque by design."""
    for parts in (item.get("content"), item.get("summary")):
        if isinstance(parts, str) and parts:
            return [parts]
        if isinstance(parts, list):
            texts = [chat.text(part.get("text")) for part in parts if isinstance(part, dict)]
            if any(texts):
                return texts
    return []


def call(item: dict[str, Any], kind: str) -> dict[str, Any]:
    """A tool call. Calls that the server answers itself have no name of their own: their kind serves."""
    value = item.get("arguments")
    for name in ("input", "action", "queries", "code", "revised_prompt"):
        if value is None:
            value = item.get(name)
    name = chat.text(item.get("name")) or kind.removesuffix("_call")
    return chat.tool_call(item.get("call_id") or item.get("id"), name, value)


def picture(item: dict[str, Any]) -> dict[str, Any] | None:
    """The picture an image generation call made, as a block; None for any other item."""
    result = item.get("result")
    if item.get("type") != "image_generation_call" or not isinstance(result, str) or not result:
        return None
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{result}"}}


def output(item: dict[str, Any]) -> Any:
    """What a tool gave back."""
    found = item.get("output", item.get("tools"))
    return content([found]) if isinstance(found, dict) and found.get("type") in _TEXTS else content(found)
