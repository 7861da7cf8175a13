"""Profile files: regular, of a bounded size, with numbers in bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from peakfold.app import plan as face
from peakfold.errors import PeakfoldError

TEXT = (
    '{"schema":"peakfold.profile/1","target":"tflm","runtime":"r","model":"m",'
    '"ops":[{"op":"y","operator":"RELU","scratch_bytes":%s}]}'
)


@pytest.mark.parametrize(
    "number", ["-1", "1.5", "1e400", str(2**62), "9" * 5000, "nan", "[" * 9999]
)
def test_a_number_no_kernel_needs_is_refused(number: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(TEXT % number)
    with pytest.raises(PeakfoldError, match="not a profile") as caught:
        face.read_profile(tmp_path / "p.json")
    assert len(str(caught.value)) < 1000


def test_a_file_that_is_none_or_has_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good").write_text(TEXT % 4)
    assert face.read_profile(tmp_path / "good").workspace == {"y": 4}
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "bytes").write_bytes(b"\xff")
    monkeypatch.setattr(face, "PROFILE_LIMIT", 20)
    for name in ("pipe", "zero", "bytes", "good", "none", "."):
        with pytest.raises(PeakfoldError):
            face.read_profile(tmp_path / name)
