"""Compiled hot loops, no policy. Importing this package clears kernels of older sources.

Numba caches a compiled function by the file that defines it, and does not notice when a
function it calls, in another file, has changed: a mix of old and new kernels would run. So the
cache is emptied whenever the sources here are not those it was made from.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

_FOLDER = Path(__file__).parent
_STAMP = "kernels.sha256"


def sources_digest() -> str:
    """SHA-256 over the names and contents of all kernel sources."""
    digest = hashlib.sha256()
    for path in sorted(_FOLDER.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def drop_stale(cache: Path) -> bool:
    """Empty a folder of compiled kernels made from other sources; true if it was emptied.

    A folder that cannot be written holds no cache of ours, and is left alone.
    """
    digest, stamp = sources_digest(), cache / _STAMP
    with suppress(OSError):
        if _fresh(cache):
            return False
        for old in (*cache.glob("*.nbi"), *cache.glob("*.nbc")):
            old.unlink(missing_ok=True)
        cache.mkdir(parents=True, exist_ok=True)
        stamp.write_text(digest, "ascii")
        return True
    return False


def cache_folder() -> Path | None:
    """Where compiled kernels are kept: the first place that is safe and can be written.

    In this order: below ``NUMBA_CACHE_DIR``, beside the sources, in the user's cache folder, in
    a folder of the user's own among temporary ones. A folder that cannot be written but holds
    kernels of these sources does, too. `None` when there is none: then kernels are compiled in
    every process.

    Numba's files are pickles, which run what they say when they are read, so no folder is taken
    that another user could have prepared (see `safe`). Beside the sources nothing is asked, since
    who can write there can write the sources.
    """
    told = os.environ.get("NUMBA_CACHE_DIR")
    hashed = hashlib.sha1(str(_FOLDER).encode(), usedforsecurity=False).hexdigest()
    name = f"{_FOLDER.name}_{hashed}"
    if told and _usable(Path(told) / name):
        return Path(told) / name
    beside = _FOLDER / "__pycache__"
    if _writable(beside) or _fresh(beside):
        return beside
    with suppress(RuntimeError):  # a user without a home
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        if _usable(Path(home) / "peakfold" / name):
            return Path(home) / "peakfold" / name
    if hasattr(os, "getuid"):
        own = Path(tempfile.gettempdir()) / f"peakfold-{os.getuid()}" / name
        if _usable(own):
            return own
    return None


def safe(folder: Path) -> bool:
    """Whether no other user can have put files into a folder, or can put it elsewhere.

    It and all above it are ours or the system's, and others may not write to them; above it
    they may where each can remove only what is his own (the sticky bit of ``/tmp``).
    """
    if not hasattr(os, "getuid"):
        return True
    for at in (folder, *folder.parents):
        found = at.stat()
        shared = found.st_mode & stat.S_IWOTH
        if found.st_uid not in (0, os.getuid()) or at.is_symlink():
            return False
        if shared and (at == folder or not found.st_mode & stat.S_ISVTX):
            return False
    return True


def _usable(folder: Path) -> bool:
    """Whether a folder is safe, or can be made so, and can be written or holds our kernels."""
    folder = Path(os.path.realpath(folder.parent)) / folder.name
    with suppress(OSError, ValueError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return safe(folder) and (_writable(folder) or _fresh(folder))
    return False


def _writable(folder: Path) -> bool:
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        return True
    return False


def _fresh(folder: Path) -> bool:
    """Whether the kernels in a folder are of these sources."""
    with suppress(OSError, ValueError):
        return (folder / _STAMP).read_text("ascii") == sources_digest()
    return False


CACHE = cache_folder()
"""The folder that this process took."""
if CACHE is not None:
    drop_stale(CACHE)
