"""How kernels are compiled, and kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from numba import njit
from numba.core import caching

from peakfold.packing.exact.kernels import CACHE

# Numba's classes have no types.
_Base: Any = caching.FunctionCache
_Beside: Any = caching.InTreeCacheLocator
_njit = partial(njit, nogil=True, _nrt=False, error_model="numpy", no_cfunc_wrapper=True)


class _Locator(_Beside):  # type: ignore[misc]  # as above
    """The folder that `kernels` chose, in place of those numba knows of."""

    def get_cache_path(self) -> str:
        return str(CACHE)

    def ensure_cache_path(self) -> None:
        """Nothing: `kernels` has made it, and it need not be written to be read."""


class _Impl(_Base._impl_class):  # type: ignore[misc]  # as above
    _locator_classes = (_Locator,)


class KernelCache(_Base):  # type: ignore[misc]  # as above
    """Numba's cache as a foreign reader: whatever is wrong with its files, kernels are compiled."""

    _impl_class = _Impl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled kernel, or None where there is none that can be read."""
        with suppress(Exception):  # a damaged pickle raises anything
            return super().load_overload(sig, target_context)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled kernel, where that is possible."""
        try:
            super().save_overload(sig, data)
        except Exception:  # a damaged index, which saving reads first; or a full disk
            with suppress(Exception):
                self.flush()
                super().save_overload(sig, data)


def _kept(compiled: Any) -> Any:
    plain = not hasattr(compiled, "py_func")  # NUMBA_DISABLE_JIT gives the function back
    if CACHE is not None and not plain:
        compiled._cache = KernelCache(compiled.py_func)
    return compiled


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function without numba's runtime.

    Kernels allocate nothing, so the arrays they pass on need no reference counts. Counting is
    atomic and took half of the exact search's time. (The option is not in numba's manual; its
    own sorts are compiled with it.) Nothing divides by what can be zero, and no kernel is
    called from C: that saves compilation.
    """
    return _kept(_njit(function))


def inner(function: Callable[..., Any]) -> Any:
    """For what only other kernels call: no entry from Python, a quarter less to compile."""
    return _kept(_njit(no_cpython_wrapper=True)(function))
