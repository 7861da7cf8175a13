"""What peers' counters count in their own tests, built from its sizes, and our figures of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from peakfold.analysis.cost.counting import cost_of
from peakfold.frontends.torch.module import capture
from tests.frontends.stated import step_graph

from . import peers_networks as nets


@dataclass(frozen=True, slots=True)
class Counted:
    """A network and what it is fed.

    Attributes:
        make: makes the module, in training mode.
        shapes: of its float inputs.
        inputs: makes all inputs, in place of `shapes`.
        train: it is counted in training mode.
        route: how it is captured.
    """

    make: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...] = ()
    inputs: Callable[[], tuple[Any, ...]] | None = None
    train: bool = False
    route: str = "export"
    dtype: torch.dtype = field(default=torch.float32)

    def built(self) -> tuple[nn.Module, tuple[Any, ...]]:
        """The module and its arguments."""
        made = self.make().train(self.train)
        if self.inputs is not None:
            return made, self.inputs()
        return made, tuple(torch.rand(shape).to(self.dtype) for shape in self.shapes)


def figures(case: Mapping[str, Any]) -> dict[str, int | None]:
    """Our figures of a case, those that its peer states."""
    counted = CASES[case["suite"]][case["name"]]
    module, args = counted.built()
    if "training_flops" in case["expect"]:
        graph = step_graph(module.train(), args).graph
        return {"training_flops": 2 * (cost_of(graph).total().figures.macs or 0)}
    cost = cost_of(capture(module, args, route=counted.route))  # type: ignore[arg-type]
    whole, scopes = cost.total().figures, cost.by_scope()
    found = {"macs": whole.macs, "params": whole.params, "other_ops": whole.other_ops}
    return {
        name: found[name] if name in found else scopes[name].figures.macs for name in case["expect"]
    }


def complaint(case: Mapping[str, Any]) -> str:
    """Where we differ from the peer, other than by a definition that is told."""
    have, wanted = figures(case), case["expect"] | case.get("ours", {})
    return "" if have == wanted else f"{have}, not {wanted}"


def by_the_peer(case: Mapping[str, Any]) -> int:
    """MACs of a case, or FLOPs of a training step, by PyTorch's own counter.

    It knows no attention of a CPU but the one that is made of products.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    module, args = CASES[case["suite"]][case["name"]].built()
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        out = module(*args)
        if training := "training_flops" in case["expect"]:
            out.sum().backward()
    return counter.get_total_flops() // (1 if training else 2)


def of(function: Callable[..., Any], *shapes: tuple[int, ...], **more: Any) -> Counted:
    """A function of float inputs."""
    return Counted(partial(nets.Of, function), shapes, **more)


def learnt(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Counted:
    """A function of parameters: each needs a gradient, as the peer's inputs do."""
    return Counted(partial(nets.Learnt, function, shapes))


_PAIR = ((20, 10), (10, 100))
_THREE = Counted(nets.three, ((4, 2, 10, 10),))
_VECTORS = ((2, 2, 2, 2), (2,), (2,), (2,), (2,))
_CNN = partial(Counted, nets.digits)
_QUERY, _KEYS = (4, 8, 128, 64), (4, 8, 256, 64)
_HALF = {"dtype": torch.float16}


def _attention(q: Tensor, k: Tensor, v: Tensor, gqa: bool = False) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=gqa)


def _norm(
    x: Tensor, mean: Tensor, var: Tensor, w: Tensor, b: Tensor, train: bool = False
) -> Tensor:
    return F.batch_norm(x, mean, var, w, b, training=train)


def _expanded(a: Tensor) -> Tensor:
    return (a @ torch.ones(5, 6)).unsqueeze(0).expand(7, 4, 6).bmm(torch.ones(7, 6, 7))


def _squares(x: Tensor, times: int) -> Tensor:
    for _ in range(times):
        x = torch.mm(x, x)
    return x


FVCORE = {
    "nn.Linear": Counted(partial(nn.Linear, 8, 4), ((5, 8),)),
    "LinearNet": Counted(partial(nn.Linear, 10, 20), ((5, 10),)),
    "LinearNet 3-D": Counted(partial(nn.Linear, 10, 20), ((5, 5, 10),)),
    "conv 1": Counted(partial(nn.Conv2d, 10, 3, 3, padding=1), ((5, 10, 15, 15),)),
    "conv 3": Counted(partial(nn.Conv2d, 16, 8, 5, padding=2, groups=4), ((5, 16, 15, 15),)),
    "conv 5": Counted(partial(nn.Conv1d, 10, 3, 3, padding=1), ((5, 10, 15),)),
    "conv 9": Counted(
        partial(nn.ConvTranspose2d, 10, 3, 3, stride=3, padding=1, output_padding=2),
        ((5, 10, 15, 15),),
    ),
    "matmul": of(torch.matmul, *_PAIR),
    "matmul 2x2": of(torch.matmul, *((2, 2, *shape) for shape in _PAIR)),
    "matmul 1,-": of(torch.matmul, (1, 20, 10), (10, 100)),
    "matmul 2,-": of(torch.matmul, (2, 20, 10), (10, 100)),
    "bmm": of(torch.bmm, (2, 5, 2), (2, 2, 12)),
    "einsum nct,ncp->ntp": of(partial(torch.einsum, "nct,ncp->ntp"), (1, 5, 2), (1, 5, 12)),
    "mm": of(torch.mm, (3, 4), (4, 5)),
    "ThreeNet": _THREE,
    "ThreeNet by module": _THREE,
    "BatchNorm1d eval affine=False": Counted(
        partial(nn.BatchNorm1d, 10, affine=False), ((10, 10),)
    ),
    "batch_norm affine eval": of(_norm, *_VECTORS),
    "batch_norm train affine": of(partial(_norm, train=True), *_VECTORS, train=True),
    "group_norm plain": of(partial(F.group_norm, num_groups=2), (2, 2, 2, 2)),
}
FLOP_COUNTER = {
    "matmul": of(torch.matmul, (5, 6), (6, 7)),
    "einsum ab,bc->ac": of(partial(torch.einsum, "ab,bc->ac"), (6, 7), (7, 8)),
    "Linear(9,10)": Counted(partial(nn.Linear, 9, 10), ((8, 9),)),
    "bmm": of(torch.bmm, (3, 4, 5), (3, 5, 6)),
    "baddbmm": of(torch.baddbmm, (3, 4, 6), (3, 4, 5), (3, 5, 6)),
    "conv2d": of(partial(F.conv2d, padding=1), (2, 3, 6, 6), (6, 3, 4, 4)),
    "conv1d": of(partial(F.conv1d, padding=1), (2, 3, 6), (6, 3, 4)),
    "cos": of(torch.cos, (4, 5)),
    "sdpa uniform": of(_attention, _QUERY, _QUERY, _QUERY, **_HALF),
    "sdpa nonuniform": of(_attention, _QUERY, _KEYS, _KEYS, **_HALF),
    "sdpa gqa": of(
        partial(_attention, gqa=True), _QUERY, (4, 2, 256, 64), (4, 2, 256, 64), **_HALF
    ),
    "conv_transpose2d 2x2": of(F.conv_transpose2d, (1, 1, 2, 2), (1, 1, 2, 2)),
    "conv2d 1x1": of(F.conv2d, (1, 1, 2, 2), (1, 1, 1, 1)),
    "ConvTranspose2d(4,8) x50 fwd": Counted(
        partial(nn.ConvTranspose2d, 4, 8, (2, 2), stride=2), ((1, 4, 30, 2),)
    ),
}
TRAINING = {
    "backward": learnt(_expanded, (4, 5)),
    "reset": learnt(lambda a: a.mm(a.t()), (4, 5)),  # one of two equal steps
    "pytree": Counted(nets.Nested),
    "mod2": learnt(partial(_squares, times=1), (10, 10)),
    "ct": Counted(partial(nn.ConvTranspose2d, 4, 8, (2, 2), stride=2), ((1, 4, 30, 2),)),
    "cv1": learnt(F.conv_transpose2d, (1, 1, 2, 2), (1, 1, 2, 2)),
    "cv3": learnt(F.conv2d, (1, 3, 4, 4), (7, 3, 2, 2)),
    "cv4": learnt(F.conv_transpose2d, (1, 2, 4, 4), (2, 4, 2, 2)),
    "sdn": learnt(_attention, _QUERY, _KEYS, _KEYS),
    "resnet18": Counted(nets.Resnet18OfALearntImage),
}
PTFLOPS = {
    "conv_t": Counted(partial(nn.ConvTranspose2d, 3, 2, 3), ((1, 3, 224, 224),)),
    "fc_multidim": Counted(partial(nn.Linear, 3, 2, bias=False), ((1, 4, 5, 3),)),
    "interpolate (20, 20)": of(
        partial(F.interpolate, size=(20, 20), mode="bilinear"), (1, 3, 10, 10)
    ),
    "interpolate 20": of(partial(F.interpolate, size=20, mode="bilinear"), (1, 3, 10, 10)),
    "ten_matmul": of(lambda x: x @ x.t(), (1, 10)),
}
TORCHINFO = {
    "string_result": _CNN(((16, 1, 28, 28),)),
    "single_input_all_cols": _CNN(((7, 1, 28, 28),)),
    "input_tensor": _CNN(((5, 1, 28, 28),)),
    "return_dict": Counted(nets.Named, ((1, 1, 28, 28), (1, 12))),
    "single_linear_layer": Counted(partial(nn.Linear, 2, 5), ((1, 2),)),
    "custom_parameter": Counted(partial(nets.Unread, "weight", (4, 8)), ((1,),)),
    "pruned_names": Counted(partial(nets.Unread, "weight_orig", (4, 8)), ((1,),)),
    "parameter_list": Counted(nets.Listed, ((100, 100),)),
    "multiple_input_types": Counted(
        nets.TwoTowers, inputs=lambda: (torch.rand(1, 300), torch.ones(1, 300).long())
    ),
    "module_dict conv lrelu": Counted(
        nets.Chosen, inputs=lambda: (torch.rand(1, 10, 3, 3), "conv", "lrelu")
    ),
    "module_dict pool prelu": Counted(
        nets.Chosen, inputs=lambda: (torch.rand(1, 10, 3, 3), "pool", "prelu")
    ),
    "autoencoder": Counted(nets.Unpooled, ((1, 3, 64, 64),)),
    "reuse_relu": Counted(nets.one_relu, ((4, 4, 64, 64),)),
    "parameter_fc 128 64 32": Counted(partial(nets.Product, 32), ((3, 128),)),
    "parameter_fc 128 64": Counted(nets.Product, ((3, 128),)),
    "recursive_missing": Counted(nets.dilated, ((2, 3, 128, 128),)),
    "cnn_module_list A": Counted(nets.small_convolutions, ((1, 1, 10),)),
    "tied_weights": Counted(nets.Tied, inputs=lambda: (torch.ones(1, 5).long(),)),
    "simple_rnn": Counted(nets.Cell, ((2, 3),)),
    "simple_rnn outside": Counted(partial(nets.Cell, True), ((2, 3),)),
    "tensor_kernel": Counted(partial(nn.Conv1d, 1, 1, 3, padding=1), ((1, 1, 16),)),
    "scalar_tensor": Counted(nets.Scaled, ((1, 10), ())),
    "categorical": Counted(nets.Categories, ((1, 10),), route="run"),
    "normal": Counted(nets.Gaussian, ((1, 10),), route="run"),
    "mixed_trainable_cnn": Counted(nets.frozen_parts, ((1, 1, 1),)),
    "dict_parameter": Counted(
        nets.Keyed, inputs=lambda: ({256: torch.rand(10, 1), 512: [torch.rand(10, 1)]}, 5)
    ),
}
CASES: Mapping[str, Mapping[str, Counted]] = {
    "fvcore": FVCORE,
    "flop_counter": FLOP_COUNTER,
    "flop_counter-train": TRAINING,
    "ptflops": PTFLOPS,
    "torchinfo": TORCHINFO,
}
