"""Starts servers that end with the test run, in folders that the next run sweeps up.

A test run may be killed at any moment. What it started then ends at once (the
kernel sends the signal), and its folder is no longer locked, which is how the
next run knows that it may go.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pwd
    from collections.abc import Iterator, Mapping, Sequence

HOST = "127.0.0.1"
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded here, because between fork and exec is no place to load a library


def free_ports(count: int) -> list[int]:
    """Port numbers of loopback that nobody listens on, all different."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def as_user(who: pwd.struct_passwd | None) -> dict[str, Any]:
    """The arguments of `subprocess` that start a program as another user; none of them for ourselves."""
    return {} if who is None else {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}


def spawn(
    command: Sequence[str | Path],
    *,
    folder: Path,
    log: Path,
    env: Mapping[str, str],
    who: pwd.struct_passwd | None = None,
    last_signal: signal.Signals = signal.SIGKILL,
) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own.

    Call it from a thread that lives as long as the server shall: Linux ends the
    server when that thread ends, not only when the process does.

    Args:
        command: program and arguments.
        folder: where it runs.
        log: the file that takes its output; appended to.
        env: its whole environment.
        who: the user it runs as, None for ours.
        last_signal: what it gets when we die.
    """

    def die_with_parent() -> None:
        if sys.platform == "linux":  # elsewhere PostgreSQL notices within a minute that its files are gone
            _LIBC.prctl(PR_SET_PDEATHSIG, int(last_signal), 0, 0, 0)

    with log.open("ab") as out, warnings.catch_warnings():
        # Python 3.12 warns of a fork beside threads; the child makes one system call and no more.
        warnings.simplefilter("ignore", DeprecationWarning)
        return subprocess.Popen(
            command,
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=die_with_parent,
            **as_user(who),
        )


@contextmanager
def private_folder(prefix: str, parent: Path | None = None, who: pwd.struct_passwd | None = None) -> Iterator[Path]:
    """A folder for one server, removed at the end; folders that killed runs left behind go first.

    Args:
        prefix: start of its name, the same for all folders of a kind.
        parent: where to make it; None for the folder of temporary files.
        who: whom it belongs to, None for ourselves.
    """
    parent = parent or Path(tempfile.gettempdir())
    for old in parent.glob(f"{prefix}*/lock"):
        with contextlib.suppress(OSError), old.open() as held:  # in use, another user's, or gone already
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old.parent, ignore_errors=True)
    # Locked under another name first: a sweeper must never meet one that is ours but not locked yet.
    made = Path(tempfile.mkdtemp(prefix=f".new-{prefix}", dir=parent))
    folder = parent / made.name.removeprefix(".new-")
    try:
        with (made / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if who is not None:
                made.chmod(0o711)  # sockets inside are for all users, as a system server's are
                os.chown(made, who.pw_uid, who.pw_gid)
            made.rename(folder)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
