"""Operators for tables of steps: positions, views and products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional as F

N = 128


def named(names: str, make: Callable[[str], Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """A function for each of some names."""
    return {name: make(name) for name in names.split()}


def heads(x: torch.Tensor) -> torch.Tensor:
    """Two batches of four heads of sixteen positions."""
    return x.view(2, 4, 16, N)


def images(x: torch.Tensor) -> torch.Tensor:
    """Four images of four channels."""
    return x.view(4, 4, 32, 32)


def _set(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[3:50] = y[:47]
    return x


sdpa = F.scaled_dot_product_attention

MOVES: Mapping[str, Callable[..., Any]] = {
    # positions and views
    "take": lambda x, i: x.take(i),
    "gather": lambda x, i: x.gather(1, i),
    "index": lambda x, v: x[v],
    "index_two": lambda x, v: x[v, v],
    "index_select": lambda x, v: x.index_select(0, v),
    "take_along": lambda x, i: x.take_along_dim(i, 1),
    "index_mask": lambda x, m: x[m],
    "index_mask_rows": lambda x, m: x[m[0]],
    "masked_select": lambda x, m: x.masked_select(m),
    "masked_fill": lambda x, m: x.masked_fill(m, 0.0),
    "masked_fill_value": lambda x, m, a: x.masked_fill(m, a.sum()),
    "masked_scatter": lambda x, m, y: x.masked_scatter(m, y),
    "nonzero_rows": lambda x, m: x[m[:, 0].nonzero().squeeze(1)],
    "repeat_interleave": lambda x: x.repeat_interleave(3, 0),
    "repeat_interleave_of": lambda x, v: x.repeat_interleave(v % 3, 0),
    "unique_rows": lambda x, v: x[v.unique()],
    "index_add": lambda x, v, y: x.index_add(0, v, y),
    "index_copy": lambda x, y: x.index_copy(0, torch.arange(N), y),
    "index_fill": lambda x, v: x.index_fill(0, v, 0.0),
    "index_fill_of": lambda x, v, a: x.index_fill(0, v, a.sum()),
    "index_put": lambda x, v, y: x.index_put((v,), y),
    "index_put_add": lambda x, v, y: x.index_put((v,), y, accumulate=True),
    "index_put_mask": lambda x, m, a: x.index_put((m,), a.sum()),
    "scatter": lambda x, i, y: x.scatter(1, i, y),
    "scatter_value": lambda x, i: x.scatter(1, i, 0.5),
    "scatter_add": lambda x, i, y: x.scatter_add(1, i, y),
    "put": lambda x, i, y: x.put(i, y),
    "put_add": lambda x, i, y: x.put(i, y, accumulate=True),
    "set_item": lambda x, y: _set(x * 1.0, y),
    **{
        f"scatter_{n}": f
        for n, f in named(
            "prod mean amax amin sum", lambda n: lambda x, i, y: x.scatter_reduce(1, i, y, n)
        ).items()
    },
    **{
        f"index_{n}": f
        for n, f in named(
            "prod mean amax amin", lambda n: lambda x, v, y: x.index_reduce(0, v, y, n)
        ).items()
    },
    "select_scatter": lambda x, a: x.select_scatter(a, 0, 3),
    "slice_scatter": lambda x, y: x.slice_scatter(y[:50], 0, 3, 53),
    "diagonal_scatter": lambda x, a: x.diagonal_scatter(a),
    "diagonal": lambda x: x.diagonal(),
    "diag": lambda x: x.diag(),
    "diag_embed": lambda a: a.diag_embed(),
    "trace": lambda x: x.trace(),
    "trace_of": lambda x, y: (x @ y).trace(),
    "select": lambda x: x[3],
    "slice": lambda x: x[3:50],
    "unfold": lambda x: x.unfold(0, 8, 4),
    "as_strided": lambda x: x.as_strided((N, 5), (N, 1)),
    "narrow": lambda x: x.narrow(1, 3, 20),
    "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(3, 0),
    "rot90": lambda x: x.rot90(),
    "t": lambda x: x.t() * 2,
    "permute": lambda x: x.view(4, 32, N).permute(2, 0, 1).contiguous(),
    "expand": lambda x: x[None].expand(3, N, N) * 2,
    "repeat": lambda x: x.repeat(2, 2),
    "tile": lambda x: x.tile(2),
    "unbind": lambda x: x.unbind()[0] + x.unbind()[1],
    "split": lambda x: torch.cat(x.split(40)[:2]),
    "chunk": lambda x: x.chunk(4)[2],
    "cat": lambda x, y: torch.cat([x, y]),
    "stack": lambda x, y: torch.stack([x, y]),
    "block_diag": lambda x, y: torch.block_diag(x, y),
    "meshgrid": lambda a, b: torch.stack(torch.meshgrid(a, b, indexing="ij")),
    "cartesian": lambda a, b: torch.cartesian_prod(a, b),
    "combinations": lambda a: torch.combinations(a),
    "two_uses": lambda x: x.exp() + x.sin() + x.cos(),
    "pad": lambda x: F.pad(x, (3, 3)),
    "pad_reflect": lambda x: F.pad(x[None], (3, 3), mode="reflect"),
    "pad_replicate": lambda x: F.pad(x[None], (3, 3), mode="replicate"),
    "pad_circular": lambda x: F.pad(x[None], (3, 3), mode="circular"),
    "to_half": lambda x: x.bfloat16().exp().float(),
    "to_double": lambda x: x.double().exp(),
    "half_times_float": lambda x, y: x.bfloat16() * y,
    # products
    "bmm": lambda x, y: torch.bmm(x.view(4, 32, N), y.view(4, N, 32)),
    "baddbmm": lambda x, y: torch.baddbmm(x[None], y[None], x[None]),
    "addmm": lambda x, y, z: torch.addmm(x, y, z),
    "addmv": lambda x, a, b: torch.addmv(a, x, b),
    "addr": lambda x, a, b: torch.addr(x, a, b),
    "mv": lambda x, a: x.mv(a),
    "dot": lambda a, b: a.dot(b),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "tensordot": lambda x, y: torch.tensordot(x, y, 1),
    "multi_dot": lambda x, y, z: torch.linalg.multi_dot([x, y, z]),
    "chain": lambda x, y: torch.chain_matmul(x, y, x) if False else x @ y @ x,
    "cross": lambda x, y: torch.linalg.cross(x[:, :3], y[:, :3]),
    "vecdot": lambda x, y: torch.linalg.vecdot(x, y),
    "linear": lambda x, y, a: F.linear(x, y, a),
    "linear_3d": lambda x, y, a: F.linear(x.view(4, 32, N), y, a),
    "linear_4d": lambda x, y, a: F.linear(x.view(4, 4, 8, N).transpose(0, 1), y, a),
    "bilinear": lambda x, y, z: F.bilinear(x[:, :32], y[:, :32], z.view(16, 32, 32)),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y),
    "pairwise_distance": lambda x, y: F.pairwise_distance(x, y),
    "pdist": lambda x: F.pdist(x),
    "sdpa": lambda x, y, z: sdpa(heads(x), heads(y), heads(z)),
    "sdpa_causal": lambda x, y, z: sdpa(heads(x), heads(y), heads(z), is_causal=True),
    "sdpa_mask": lambda x, y, z, m: sdpa(heads(x), heads(y), heads(z), attn_mask=m[:16, :16]),
    "sdpa_bias": lambda x, y, z: sdpa(x[None, None], y[None, None], x[None, None], attn_mask=z),
    "sdpa_dropout": lambda x, y, z: sdpa(heads(x), heads(y), heads(z), dropout_p=0.1),
    "sdpa_groups": lambda x, y, z: sdpa(
        heads(x), y[:64].reshape(2, 2, 16, N), z[:64].reshape(2, 2, 16, N), enable_gqa=True
    ),
}
