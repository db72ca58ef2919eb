"""Errors as agents need them: what kind, what is wrong, and what to do next."""

from __future__ import annotations

import logging

from crowmem import errors
from crowmem.mcp.answers import Fault
from crowmem.terminal import one_line

log = logging.getLogger(__name__)

MESSAGE_CHARACTERS = 1000
# The first that fits counts, so subclasses stand before their bases.
_CURES: tuple[tuple[type[errors.CrowmemError], str], ...] = (
    (errors.InvalidValue, "Correct the argument and call again."),
    (errors.NotFound, "list_sessions shows the sessions there are, query_session the messages of one."),
    (
        errors.SchemaTooOld,
        "Ask the user to run `crowmem status` on this store once: it adds what crowmem needs to a crow-cli store (v5) "
        "or to one of an older crowmem, and keeps what is there; a v4 store has to be imported with `crowmem import`. "
        "Then call again, this server need not be restarted.",
    ),
    (errors.SchemaTooNew, "Ask the user to upgrade crowmem, then to restart this server."),
    (errors.SchemaMismatch, "Ask the user to check which database this server was started with (--db)."),
    (errors.ConfigError, "Ask the user to correct the settings of this server."),
    (errors.Unavailable, "Nothing happened: try again in some seconds. If it stays, ask the user about the database."),
    (errors.StoreCorrupt, "Ask the user to run `crowmem check` on this store."),
)
_OTHER = "Do not repeat the call; tell the user."


def fault_of(error: Exception) -> Fault:
    """What an agent is told of an error. One that should not happen goes to the log, and only its kind to the agent."""
    if not isinstance(error, errors.CrowmemError):
        log.error("a tool failed", exc_info=error)
        kind = type(error).__name__
        return Fault("Internal", f"this should not happen: {kind}; the server's log has more", _OTHER)
    cure = next((text for kind, text in _CURES if isinstance(error, kind)), _OTHER)
    message = one_line(str(error))
    shown = message if len(message) <= MESSAGE_CHARACTERS else message[:MESSAGE_CHARACTERS] + "…"
    return Fault(type(error).__name__, shown, cure, error.retryable)
