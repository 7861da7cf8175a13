"""Modules named as ``package.module:callable``."""

from __future__ import annotations

import pytest

from peakfold.errors import UsageError

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_a_file_in_place_of_a_module_is_told_how_to_write_it(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peakfold.frontends.torch.load import _found

    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "some_nets.py").write_text("def net(): ...\n")
    with pytest.raises(UsageError) as told:
        _found("some_nets.py:net")
    assert "write some_nets:net" in str(told.value)
    with pytest.raises(UsageError) as told:
        _found("no_such_nets:net")
    assert "write" not in str(told.value)
