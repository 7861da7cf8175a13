"""Whether a kernel has to be compiled before its first call in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def must_compile(kernel: Any) -> bool:
    """True if `kernel` is neither loaded nor in numba's cache on disk (it writes one index each).

    An index left by an older source is taken for a valid one: this is for narration only.
    """
    if kernel.signatures:
        return False
    if not kernel.stats.cache_path:
        return True
    code = kernel.py_func.__code__
    folder = Path(kernel.stats.cache_path)
    name = f"{Path(code.co_filename).stem}.{kernel.__name__}-{code.co_firstlineno}.*.nbi"
    return not any(folder.glob(name))
