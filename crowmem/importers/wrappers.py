"""Text that tools wrap around, or put between, what a user wrote: recognised by how it begins."""

from __future__ import annotations

import re

# opening text → what the message is called; the first that fits counts
_OPENINGS: tuple[tuple[str, str], ...] = (
    ("<system-reminder>", "reminder"),
    ("<local-command-caveat>", "caveat"),
    ("Caveat: The messages below were generated", "caveat"),
    ("<local-command-stdout>", "command-output"),
    ("<local-command-stderr>", "command-output"),
    ("<bash-stdout>", "command-output"),
    ("<bash-stderr>", "command-output"),
    ("<task-notification>", "notification"),
    ("<ide_opened_file>", "editor"),
    ("<ide_selection>", "editor"),
    ("<ide_diagnostics>", "editor"),
    ("<user-prompt-submit-hook>", "hook"),
    ("<session-start-hook>", "hook"),
    ("[Request interrupted by user", "interrupted"),
    ("<environment_context>", "environment"),
    ("<environment_details>", "environment"),
    ("<user_instructions>", "instructions"),
    ("<permissions instructions>", "instructions"),
    ("<collaboration_mode>", "instructions"),
    ("<apps_instructions>", "instructions"),
    ("<skills_instructions>", "instructions"),
    ("<plugins_instructions>", "instructions"),
    ("<personality_spec>", "instructions"),
    ("<model_switch>", "instructions"),
    ("<INSTRUCTIONS>", "instructions"),
    ("# AGENTS.md instructions for ", "instructions"),
    ("<skill>", "skill"),
    ("<turn_aborted>", "interrupted"),
    ("<subagent_notification>", "notification"),
)
_LOOKED_AT = 80
_COMMAND = re.compile(r"<command-(?:name|message)>")
_NAME = re.compile(r"<command-name>\s*(.*?)\s*</command-name>", re.DOTALL)
_ARGUMENTS = re.compile(r"<command-args>\s*(.*?)\s*</command-args>", re.DOTALL)


def wrapper(text: str) -> str:
    """What kind of inserted text this is; "" when a user may have written it.

    A slash command with arguments counts as the user's own words, one without as inserted.
    """
    start = text[:_LOOKED_AT].lstrip()
    if start[:1] not in ("<", "[", "C", "#"):
        return ""
    for opening, kind in _OPENINGS:
        if start.startswith(opening):
            return kind
    if _COMMAND.match(start):
        found = _ARGUMENTS.search(text)
        return "" if found and found[1] else "command"
    return ""


def bare(text: str) -> str:
    """What the user typed: a wrapped slash command as ``/name arguments``, any other text as it is."""
    if not _COMMAND.match(text.lstrip()):
        return text
    name, found = _NAME.search(text), _ARGUMENTS.search(text)
    return " ".join(part[1] for part in (name, found) if part and part[1]) or text
