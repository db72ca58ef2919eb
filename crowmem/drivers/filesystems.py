"""Which kind of file system a path lies on, and whether SQLite's write-ahead log is safe there.

The log's index lives in shared memory, which network and virtual-machine file shares do not keep coherent: users lost
whole stores within a minute, even with one machine writing.
"""

from __future__ import annotations

import os
from pathlib import Path

_UNFIT = frozenset(
    (
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb2",
            "smb3",
            "smbfs",
            "ncpfs",
            "afs",
            "9p",
            "virtiofs",
            "vboxsf",
            "prl_fs",
            "vmhgfs",
        ),
        *("drvfs", "lustre", "ceph", "glusterfs", "beegfs", "gpfs", "ocfs2", "gfs2", "davfs", "acfs"),
    )
)
_MOUNTS = Path("/proc/self/mountinfo")


def shares_memory(path: Path, mounts: Path = _MOUNTS) -> tuple[str, bool]:
    """The file system's kind ("" when unknown) and whether processes can share a write-ahead log on it.

    Args:
        path: a file, which need not exist yet.
        mounts: the kernel's list of mounts (Linux); where it is missing every file system is taken as local.
    """
    kind = _kind(os.path.realpath(path), mounts)
    fuse = kind.startswith("fuse") and kind not in ("fuseblk", "fuse.fuse-overlayfs")  # remote for all we know
    return kind, not (fuse or kind in _UNFIT)


def _kind(path: str, mounts: Path) -> str:
    """The type of the mount with the longest matching mount point; later lines cover earlier ones."""
    best, kind = "", ""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = fields[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind
