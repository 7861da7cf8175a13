"""Doctests of front ends whose framework is not installed are not collected."""

from __future__ import annotations

from importlib.util import find_spec

_TORCH = [
    "src/peakfold/frontends/torch/*",
    "src/peakfold/runtimes/torch/*",
    "src/peakfold/examples/*",
]
collect_ignore_glob = [] if find_spec("torch") else _TORCH
