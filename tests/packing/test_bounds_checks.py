"""`make bounds` really checks: an index beyond an array is an error there."""

import os

import numpy as np
import pytest

from peakfold.packing import Problem
from peakfold.packing.large.compiled_first_fit import Fitter

pytestmark = pytest.mark.skipif(
    os.environ.get("NUMBA_BOUNDSCHECK") != "1", reason="only `make bounds` compiles with checks"
)


def test_a_wrong_index_is_seen():
    fitter = Fitter(Problem.of([0, 0], [1, 1], [4, 4]))
    assert fitter.place(np.array([1, 0]))[0].tolist() == [4, 0]
    first, *others = fitter.columns
    fitter.columns = (first[:1], *others)
    with pytest.raises(IndexError):
        fitter.place(np.array([1, 0]))
