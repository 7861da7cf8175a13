"""Mutated exported programs end in a sound plan or in one clean error, nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from peakfold.errors import ModelError, PeakfoldError
from peakfold.frontends import load
from tests.frontends.mutate_pt2 import mutate_members, mutate_program
from tests.frontends.pt2_archives import members, write
from tests.frontends.test_fuzz import outcome

ROUNDS = 100


@pytest.fixture(scope="module")
def seeds(tmp_path_factory) -> list[bytes]:
    """A program by hand, and three that torch exported where there is torch."""
    folder = tmp_path_factory.mktemp("seeds")
    found = [write(folder / "hand.pt2", members()).read_bytes()]
    try:
        import torch
    except ImportError:
        return found
    from tests.frontends.pt2_models import cache, lstm, quantised

    for make in (cache, lstm, quantised):
        torch.export.save(make(), folder / "made.pt2")
        found.append((folder / "made.pt2").read_bytes())
    return found


@pytest.mark.parametrize("mutate", [mutate_program, mutate_members])
def test_mutated_programs_are_planned_or_refused(mutate, seeds, tmp_path: Path, capfd) -> None:
    seen: dict[str, int] = {}
    path = tmp_path / "mutant.pt2"
    for number in range(ROUNDS):
        rng = random.Random(number)
        path.write_bytes(mutate(rng.choice(seeds), rng))
        verdict = outcome(path)
        seen[verdict] = seen.get(verdict, 0) + 1
    assert set(seen) == {"planned", "refused"}
    assert capfd.readouterr() == ("", "")


def test_what_the_seeds_are(seeds, tmp_path: Path) -> None:
    for data in seeds:
        (tmp_path / "seed.pt2").write_bytes(data)
        assert load(tmp_path / "seed.pt2").graph.ops
    (tmp_path / "seed.pt2").write_bytes(seeds[0][:50])
    with pytest.raises(PeakfoldError) as caught:
        load(tmp_path / "seed.pt2")
    assert isinstance(caught.value, ModelError)
