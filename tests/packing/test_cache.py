"""Compiled kernels of other sources are dropped before they can run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from peakfold.packing.exact import kernels
from peakfold.packing.exact.kernels import cache_folder, drop_stale, safe, sources_digest


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


def kernel_run(tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A process that compiles one small kernel from a copy of the kernels' package."""
    package = tmp_path / "site" / "peakfold"
    if not package.exists():
        source = Path(kernels.__file__).parents[3]
        for part in (
            "__init__.py",
            "errors.py",
            "packing/__init__.py",
            "packing/exact/__init__.py",
            "packing/exact/kernels",
        ):
            (package / part).parent.mkdir(parents=True, exist_ok=True)
            if (source / part).is_dir():
                skip = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source / part, package / part, ignore=skip)
            else:
                (package / part).write_text("")
        (package / "packing/exact/kernels/__pycache__").write_text(
            ""
        )  # nothing can be written there
    code = (
        "import peakfold.packing.exact.kernels as k\n"
        "from peakfold.packing.exact.kernels import small\n"
        "print(k.CACHE, small.twice(21), sum(small.twice.stats.cache_hits.values()))"
    )
    (package / "packing/exact/kernels/small.py").write_text(
        "from peakfold.packing.exact.kernels.jit import kernel\n\n"
        "@kernel\ndef twice(n):\n    return 2 * n\n"
    )
    gone = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    nowhere = {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null/x", "TMPDIR": str(tmp_path)}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=gone | nowhere | {"PYTHONPATH": str(tmp_path / "site")} | env,
    )


def test_a_read_only_installation_keeps_kernels_in_a_folder_of_the_users_own(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o1777)
    first, second = kernel_run(tmp_path), kernel_run(tmp_path)
    folder, *rest = first.stdout.split()
    assert (first.returncode, rest) == (0, ["42", "0"]), first.stderr
    assert Path(folder).is_relative_to(tmp_path / f"peakfold-{os.getuid()}")
    assert Path(folder).stat().st_mode & 0o077 == 0
    assert second.stdout.split() == [folder, "42", "1"]
    # Damaged files are compiled anew, and replaced.
    for name, data in (("*.nbc", b"\x80"), ("*.nbi", b"garbage")):
        for path in Path(folder).glob(name):
            path.write_bytes(data)
        assert kernel_run(tmp_path).stdout.split() == [folder, "42", "0"], name
    assert kernel_run(tmp_path).stdout.split() == [folder, "42", "1"]


def test_without_any_folder_kernels_are_compiled_each_time(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / f"peakfold-{os.getuid()}").write_text("")  # no folder can be made here
    done = kernel_run(tmp_path, NUMBA_CACHE_DIR="/dev/null/x")
    assert (done.returncode, done.stdout.split()) == (0, ["None", "42", "0"]), done.stderr


def test_a_folder_that_others_could_have_prepared_is_not_read(tmp_path: Path) -> None:
    """Numba's files are pickles: who writes them runs code in our name."""
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    hostile.chmod(0o777)  # without the sticky bit
    done = kernel_run(tmp_path, NUMBA_CACHE_DIR=str(hostile))
    assert done.stdout.split()[1:] == ["42", "0"], done.stderr
    assert not Path(done.stdout.split()[0]).is_relative_to(hostile)
    mine = tmp_path / "mine"
    mine.mkdir()
    assert safe(mine)
    link = tmp_path / "link"
    link.symlink_to(mine)
    assert not safe(link)
    mine.chmod(0o757)
    assert not safe(mine)


def test_the_folder_is_where_numba_really_writes(tmp_path: Path, monkeypatch) -> None:
    """Also when a variable sends the cache elsewhere: a stale kernel there would be as wrong."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    code = (
        "import peakfold.packing.exact.kernels.jit as jit\n"
        "from peakfold.packing.exact.kernels import cache_folder\n"
        "from numba.core.caching import UserProvidedCacheLocator as L\n"
        "print(L.get_suitable_cache_subpath(jit.__file__))\n"
        "print(cache_folder().name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    one, two = done.stdout.split()
    assert one == two
    assert (tmp_path / two / "kernels.sha256").read_text() == sources_digest()
    assert cache_folder() == tmp_path / two
