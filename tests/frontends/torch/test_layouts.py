"""Layouts of results on tensors without memory: as the kernels choose them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from peakfold.frontends.torch.fake import fake_tree  # noqa: E402
from peakfold.frontends.torch.training.step import StepOptions, fake_steps, real_steps  # noqa: E402
from peakfold.frontends.torch.unwatched.following import FollowingMode  # noqa: E402
from peakfold.runtimes.torch.scratch import CpuScratch  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.req("R14")]
aten = torch.ops.aten
_IMAGE, _ROWS, _FOUR = torch.rand(2, 4, 6, 5), torch.rand(2, 6, 8), torch.rand(4)
_LAST = {"memory_format": torch.channels_last}


def _columns(tensor: Any) -> Any:
    return tensor.mT.contiguous().mT


def _pixels(tensor: Any) -> Any:
    return tensor.contiguous(**_LAST)


def _norm_backward(grad: Any, x: Any) -> Any:
    one = torch.rand(2, 6, 1)
    return aten.native_layer_norm_backward(grad, x, [8], one, one, None, None, [True, False, False])


def _groups_backward(grad: Any, x: Any) -> Any:
    half = torch.rand(2, 2)
    return aten.native_group_norm_backward(grad, x, half, half, _FOUR, 2, 4, 30, 2, [True] * 3)


def _batches_backward(grad: Any, x: Any) -> Any:
    rest = (_FOUR,) * 5
    return aten.native_batch_norm_backward(grad, x, *rest, True, 1e-5, [True] * 3)


def _batches(x: Any) -> Any:
    return aten.native_batch_norm(x, _FOUR, _FOUR, _FOUR.clone(), _FOUR.clone(), True, 0.1, 1e-5)


CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "layer norm, backward": (_norm_backward, (_columns(_ROWS), _ROWS)),
    "log softmax, backward": (
        lambda g, x: aten._log_softmax_backward_data(g, x, -1, x.dtype),
        (_columns(_ROWS), _ROWS),
    ),
    "mse, backward": (
        lambda x, y: aten.mse_loss_backward(torch.ones(()), x, y, 1),
        (_columns(_ROWS), _ROWS),
    ),
    "log sigmoid": (aten.log_sigmoid_forward, (_columns(_ROWS),)),
    "group norm, backward": (_groups_backward, (_IMAGE, _pixels(_IMAGE))),
    "batch norm, backward": (_batches_backward, (_IMAGE, _pixels(_IMAGE))),
    "batch norm": (_batches, (_columns(_IMAGE),)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_fake_result_lies_as_the_real_one(name: str) -> None:
    call, operands = CALLS[name]
    real = call(*operands)
    mode = FollowingMode()
    with mode:
        fake = call(*fake_tree(operands, mode))
    if isinstance(real, tuple):
        fake, real = fake[0], real[0]
    assert fake.stride() == real.stride()


class Copies(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Copies what two views share, with an attribute of its own; the first half is trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            made = self.layer(x)
        made.said = {"rows": len(made)}
        halves = copy.deepcopy([made[:16], made[16:], made])
        assert halves[2].said == made.said
        assert halves[0].untyped_storage()._cdata == halves[2].untyped_storage()._cdata
        return self.layer(x + halves[2]).square().mean()


def test_a_copied_tensor_is_its_storage_once() -> None:
    options = StepOptions(optimizer="sgd", loss=lambda out: out)
    rows = (torch.rand(32, 64),)
    told = fake_steps(Copies(), rows, {}, options)
    assert told.steady.peak == real_steps(Copies(), rows, {}, options).steady.peak


def test_copying_what_has_a_history_is_refused_as_in_torch() -> None:
    class Refused(torch.nn.Linear):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return copy.deepcopy(super().forward(x)).sum()

    with pytest.raises(Exception, match="deepcopy protocol"):
        fake_steps(
            Refused(4, 4),
            (torch.rand(2, 4),),
            {},
            StepOptions(optimizer="sgd", loss=lambda out: out),
        )


def test_scratch_is_measured_inside_of_vmap_too() -> None:
    class Rows(torch.nn.Linear):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.func.vmap(lambda row: super(Rows, self).forward(row))(x).square().mean()

    options = StepOptions(optimizer="sgd", loss=lambda out: out)
    rows = (torch.rand(8, 16),)
    told = fake_steps(Rows(16, 16), rows, {}, options, CpuScratch())
    assert told.steady.peak >= real_steps(Rows(16, 16), rows, {}, options).steady.peak
