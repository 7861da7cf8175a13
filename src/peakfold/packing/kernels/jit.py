"""How the kernels of the exact search are compiled."""

from __future__ import annotations

from numba import njit

kernel = njit(cache=True, nogil=True, _nrt=False)  # type: ignore[call-overload]
"""Without numba's runtime: these kernels allocate nothing, so the arrays they pass on need no
reference counts. Counting is atomic and took half of the search's time. (The option is not in
numba's manual; its own sorts are compiled with it.)"""
