"""Compiled kernels of other sources are dropped before they can run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from peakfold.packing.kernels import cache_folder, drop_stale, sources_digest


def test_stale_kernels_are_dropped_and_fresh_ones_kept(tmp_path: Path) -> None:
    cache = tmp_path / "__pycache__"
    cache.mkdir()
    (cache / "old.nbi").write_bytes(b"x")
    (cache / "old.nbc").write_bytes(b"x")
    (cache / "module.pyc").write_bytes(b"x")
    assert drop_stale(cache)
    assert sorted(p.name for p in cache.iterdir()) == ["kernels.sha256", "module.pyc"]
    (cache / "new.nbi").write_bytes(b"x")
    assert not drop_stale(cache)
    assert (cache / "new.nbi").exists()
    (cache / "kernels.sha256").write_text("0" * len(sources_digest()))
    assert drop_stale(cache)
    assert not (cache / "new.nbi").exists()


def test_the_folder_is_where_numba_really_writes(tmp_path: Path, monkeypatch) -> None:
    """Also when a variable sends the cache elsewhere: a stale kernel there would be as wrong."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    code = (
        "import peakfold.packing.kernels.jit as jit\n"
        "from peakfold.packing.kernels import cache_folder\n"
        "from numba.core.caching import UserProvidedCacheLocator as L\n"
        "print(L.get_suitable_cache_subpath(jit.__file__))\n"
        "print(cache_folder().name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          check=True, env=dict(os.environ))  # fmt: skip
    one, two = done.stdout.split()
    assert one == two
    assert (tmp_path / two / "kernels.sha256").read_text() == sources_digest()
    assert cache_folder() == tmp_path / two
