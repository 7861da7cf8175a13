"""Today's tenth of the attack on the readers, through the real command line."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.fuzzing.campaign import SLICES, files, slice_number
from tests.fuzzing.readers import FILE, READERS, Mutant, finding, mutant
from tests.fuzzing.server import Run, Server

FILES = 700
"""Files per reader of the fixed whole that CI walks through a tenth at a time."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.mark.parametrize("name", READERS)
def test_todays_slice_of_broken_files(
    name: str, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = READERS[name]
    if not reader.seeds():
        pytest.skip("PyTorch writes the files to be broken")
    told: list[str] = []

    def tell(one: Mutant, found: str) -> None:
        told.append(f"mutant {one.number} of {one.seed_name}, {one.commands}: {found}")

    tenth = slice_number()
    tally = files(server, reader, 0, range(tenth, FILES, SLICES), tell)
    with capsys.disabled():
        print(f"\nbroken {name} files, slice {tenth} of {SLICES}: {dict(tally.ends)}")
    assert not told, "\n".join(told)
    refused = tally.ends.total() - tally.ends["code 0"]
    assert refused, "nothing was refused: the mutants are too fine"


@pytest.mark.parametrize("name", READERS)
def test_the_corpus_is_sound(name: str, server: Server) -> None:
    """A file that is not broken is read: what the mutants break is what they changed."""
    reader = READERS[name]
    chosen = random.Random(0).sample(reader.seeds(), min(3, len(reader.seeds())))
    for seed in chosen:
        argv = (
            tuple(f"m{reader.suffix}" if word == FILE else word for word in reader.commands[0][0])
            + seed.numbers
        )
        ran = server.run([argv], {**dict(seed.beside), f"m{reader.suffix}": seed.data})
        assert ran.codes == (0,), (seed.name, ran.err)


def test_a_number_is_one_mutant() -> None:
    for name in ("onnx", "tflite", "pf", "plan"):
        reader = READERS[name]
        assert mutant(reader, 3, 5) == mutant(reader, 3, 5)


def test_what_a_finding_is() -> None:
    one = Mutant("pf", 0, "x", 1, b"", (), (("inspect", "m.pf", "--json"),))

    def said(code: int, err: str = "", out: str = "{}", signal: int = 0, left=()) -> str | None:
        return finding(one, Run((code,), out, err, signal, 0.1, left))

    clean = "peakfold: error: m.pf: no\n"
    assert said(0) is None
    assert said(1, clean) is None
    assert said(1, clean + clean)
    assert said(1, "Traceback (most recent call last):\nKeyError: 1\n")
    assert said(1, "peakfold: internal error, please report: KeyError: 1\n")
    assert said(3)
    assert said(6, clean)
    assert said(0, "W1130 a library warns\n")
    assert said(0, out="{")
    assert said(0, signal=11)
    assert said(1, clean, left=("half.json",))
