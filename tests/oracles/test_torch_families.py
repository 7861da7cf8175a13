"""Today's slice of the families: predictions beside a plain loop in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.fuzzing.campaign import slice_number

pytest.importorskip("torch", reason="pip install 'peakfold[torch]'")
pytest.importorskip("transformers", reason="pip install transformers")

from peakfold.cli import main
from peakfold.frontends.torch.unwatched import askers as torch_asked
from tests.oracles.torch_families import FAMILIES, names
from tests.oracles.torch_predicted import beside

pytestmark = [pytest.mark.torch, pytest.mark.req("R13")]
_SLICES = 60
"""Each commit walks one of so many parts; `make oracles` all of them."""


def test_todays_slice(capsys: pytest.CaptureFixture[str]) -> None:
    found = beside(list(names())[slice_number(_SLICES) :: _SLICES])
    with capsys.disabled():
        print(f"\nfamilies, slice {slice_number(_SLICES)} of {_SLICES}: {len(found)} cases")
    assert [f"{b.name}: {b.error:+.2%} {b.why}" for b in found if not b.right] == []


def test_all_sixteen_families_are_there() -> None:
    assert len(FAMILIES) == 16
    assert {name.split()[0] for name in names()} == set(FAMILIES)


def test_a_library_that_sees_fake_tensors_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle can fail: models that ask who watches get another answer, and another peak."""
    monkeypatch.setattr(torch_asked, "_answers", dict)
    broken = beside(["llama sdpa ones step"])
    assert not broken[0].right


_BERT = """
import torch, transformers
from peakfold import Example

def bert():
    ids = torch.zeros(32, 512, dtype=torch.long)
    model = transformers.BertForMaskedLM(transformers.BertConfig()).train()
    return Example(model, (), {"input_ids": ids, "labels": ids})
"""


def test_the_library_s_own_bert_does_not_fit_a_t4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the plain model with labels: near 17 GiB, of which the library's loss holds a part."""
    (tmp_path / "library_bert.py").write_text(_BERT, "utf-8")
    monkeypatch.chdir(tmp_path)
    words = ["plan", "library_bert:bert", "--train", "--optimizer", "adamw", "--device", "t4"]
    done = CliRunner().invoke(main, [*words, "--json"])
    assert done.exit_code == 3
    said = json.loads(done.stdout)
    assert said["fits"] is False
    assert 16.5 < said["need_bytes"] / 2**30 < 17.5
