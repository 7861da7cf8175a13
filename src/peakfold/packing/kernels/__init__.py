"""Compiled hot loops, no policy. Importing this package clears kernels of older sources.

Numba caches a compiled function by the file that defines it, and does not notice when a
function it calls, in another file, has changed: a mix of old and new kernels would run. So the
cache is emptied whenever the sources here are not those it was made from.
"""

from __future__ import annotations

import hashlib
import os
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
        if stamp.is_file() and stamp.read_text("ascii") == digest:
            return False
        for old in (*cache.glob("*.nbi"), *cache.glob("*.nbc")):
            old.unlink(missing_ok=True)
        cache.mkdir(parents=True, exist_ok=True)
        stamp.write_text(digest, "ascii")
        return True
    return False


def cache_folder() -> Path:
    """Where numba keeps what it compiles from here: beside the sources, or where it is told.

    With ``NUMBA_CACHE_DIR`` set, numba makes a folder there that is named after this one.
    """
    told = os.environ.get("NUMBA_CACHE_DIR")
    if not told:
        return _FOLDER / "__pycache__"
    hashed = hashlib.sha1(str(_FOLDER).encode(), usedforsecurity=False).hexdigest()
    return Path(told) / f"{_FOLDER.name}_{hashed}"


drop_stale(cache_folder())
