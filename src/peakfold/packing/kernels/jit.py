"""How kernels are compiled."""

from __future__ import annotations

from functools import partial

from numba import njit

_njit = partial(
    njit, cache=True, nogil=True, _nrt=False, error_model="numpy", no_cfunc_wrapper=True
)
kernel = _njit()
"""Without numba's runtime: kernels allocate nothing, so the arrays they pass on need no
reference counts. Counting is atomic and took half of the exact search's time. (The option is
not in numba's manual; its own sorts are compiled with it.) Nothing divides by what can be zero,
and no kernel is called from C: that saves compilation."""

inner = _njit(no_cpython_wrapper=True)
"""For what only other kernels call: no entry from Python, a quarter less to compile."""
