"""Compiled kernels of other sources are dropped before they can run."""

from __future__ import annotations

from pathlib import Path

from peakfold.packing.kernels import drop_stale, sources_digest


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
