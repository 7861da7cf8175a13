"""Complex modules count alike on every route."""

import pytest

torch = pytest.importorskip("torch")

from peakfold import cost  # noqa: E402
from peakfold.frontends.torch.module import capture  # noqa: E402

ROUTES = ("export", "trace", "run")


class Of(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *operands):
        return self.function(*operands)


def figures(function, *shapes, route="export"):
    operands = tuple(torch.randn(shape, dtype=torch.complex64) for shape in shapes)
    found = cost(capture(Of(function), operands, route=route)).total().figures
    return found.macs, found.other_ops


@pytest.mark.parametrize("route", ROUTES)
def test_a_complex_product_on_every_route(route):
    assert figures(lambda a, b: a @ b, (4, 5), (5, 6), route=route) == (480, 0)


@pytest.mark.parametrize(
    ("function", "shapes", "macs", "other"),
    [
        (torch.bmm, [(3, 4, 5), (3, 5, 6)], 1440, 0),
        (torch.addmm, [(4, 6), (4, 5), (5, 6)], 480, 48),
        (torch.nn.functional.linear, [(4, 5), (6, 5), (6,)], 480, 48),
        (torch.nn.functional.conv1d, [(1, 2, 9), (3, 2, 4)], 4 * 3 * 6 * 2 * 4, 0),
        (lambda a, b: torch.einsum("ij,jk->ik", a, b), [(4, 5), (5, 6)], 480, 0),
        (lambda a, b: a * b, [(4, 6), (4, 6)], 0, 144),
        (lambda a: a * 2.0, [(4, 6)], 0, 48),
        (lambda a: torch.fft.fft(a), [(2, 8)], 0, 2 * 5 * 8 * 3),
    ],
)
def test_complex_operators_by_hand(function, shapes, macs, other):
    assert figures(function, *shapes) == (macs, other)
