"""Tensors that are made of others: which dense tensors hold the bytes of a sparse one.

A sparse tensor has no storage. What it takes lies in its indices and values, so those are what
is counted. On tensors without values torch gives every new sparse tensor no elements at all; how
many there are follows from the operands here, or the operator is refused.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from peakfold.errors import ModelError
from peakfold.frontends.torch.values import storage_of

_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
_CPU = torch.device("cpu")
_aten = torch.ops.aten

# Operators on coordinates whose result has an element wherever an operand has one.
_ELEMENTWISE = frozenset(
    {"_coalesce", "add", "sub", "clone", "neg", "mul", "div", "pow", "sqrt", "abs", "sparse_mask",
     "sign", "square", "add_", "sub_"}
)  # fmt: skip
ROWS = "sparse gradients: a row for each index; where indices repeat, merged rows take less"
"""What is assumed of fake sparse tensors."""
_KEEP = frozenset({"detach", "detach_", "alias", "zero_", "mul_", "div_", "_coalesced_"})
"""Operators that torch itself gets right on fake tensors."""


def parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...] | None:
    """The tensors that hold a tensor's bytes: itself, or indices and values.

    Returns:
        Tensors that have a storage; `None` for a layout whose memory is not known (oneDNN's
        blocked layout, wrappers of transformations).

    Example:
        >>> square = torch.eye(3).to_sparse()
        >>> [part.untyped_storage().nbytes() for part in parts(square)]
        [48, 12]
    """
    if tensor.layout is torch.strided:
        if type(tensor) not in _PLAIN and is_traceable_wrapper_subclass(tensor):
            inner = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
            found = [parts(part) for part in inner if isinstance(part, torch.Tensor)]
            return tuple(p for some in found if some is not None for p in some)
        return None if storage_of(tensor) is None else (tensor,)
    names = _PARTS.get(tensor.layout)
    return None if names is None else tuple(getattr(tensor, name)() for name in names)


_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)


def has_parts(tensor: torch.Tensor) -> bool:
    """Whether a tensor's bytes lie in several others."""
    return tensor.layout in _PARTS


def kind_of(tensor: torch.Tensor) -> str:
    """What to call a tensor whose memory is not counted."""
    layout = str(tensor.layout).removeprefix("torch.").lstrip("_")
    return f"{type(tensor).__name__} without a storage" if layout == "strided" else layout


def fake_sparse(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    """A fake tensor with as many elements as a sparse one has."""
    shape = tuple(tensor.shape)
    held = [torch.empty_like(part, device="meta") for part in parts(tensor) or ()]
    with torch.no_grad(), torch.sparse.check_sparse_tensor_invariants(enable=False):
        if tensor.layout is torch.sparse_coo:
            made = _coordinates(held[0], held[1], shape, mode, sorted_=tensor.is_coalesced())
        else:
            kwargs = {"dtype": held[2].dtype, "layout": tensor.layout, "device": "meta"}
            bare = _aten._sparse_compressed_tensor_unsafe.default(*held, shape, **kwargs)
            made = FakeTensor(mode, bare, _CPU)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made


def run_operator(func: Any, args: Any, kwargs: Any) -> Any:
    """The result of an operator; of a sparse one on fake tensors, with its number of elements.

    A gradient that torch would take over and not copy, were nobody watching, is taken over.

    Raises:
        ModelError: how many elements a fake sparse result has is not known.
    """
    if func is _aten.clone.default and _taken_over(args[0]):
        source = args[0]
        one, two = source._indices(), source._values()
        mode = _mode_of(source)
        if mode is not None:
            return _joined(one, two, tuple(source.shape), mode, sorted_=source.is_coalesced())
        return torch.sparse_coo_tensor(one, two, source.shape, is_coalesced=source.is_coalesced())
    if func is _aten._sparse_coo_tensor_with_dims_and_tensors.default:
        mode = _mode_of(args[3])
        if mode is not None:
            coalesced = bool(kwargs.get("is_coalesced"))
            return _joined(args[3], args[4], tuple(args[2]), mode, sorted_=coalesced)
    out = func(*args, **kwargs)
    if type(out) is FakeTensor and out.layout is not torch.strided:
        return _counted(func, args, kwargs, out)
    return out


def _taken_over(tensor: Any) -> bool:
    """Whether a sparse gradient becomes its parameter's without a copy, as in a plain run."""
    if tensor.layout is not torch.sparse_coo:
        return False
    node = torch._C._current_autograd_node()
    if node is None or type(node).__name__ != "AccumulateGrad":
        return False
    return bool(tensor._indices().is_contiguous() and tensor._values().is_contiguous())


def _mode_of(tensor: Any) -> FakeTensorMode | None:
    return tensor.fake_mode if isinstance(tensor, FakeTensor) else None


def _joined(
    indices: torch.Tensor,
    values: torch.Tensor,
    shape: tuple[int, ...],
    mode: FakeTensorMode,
    *,
    sorted_: bool,
) -> torch.Tensor:
    """A fake sparse tensor of two fake tensors, whose storages stay theirs."""
    with in_kernel_invocation_manager(mode):
        return _coordinates(indices, values, shape, mode, sorted_=sorted_)


def _coordinates(
    indices: torch.Tensor,
    values: torch.Tensor,
    shape: tuple[int, ...],
    mode: FakeTensorMode,
    *,
    sorted_: bool,
) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bare = _aten._sparse_coo_tensor_unsafe.default(
            indices,
            values,
            shape,
            dtype=values.dtype,
            layout=torch.sparse_coo,
            device="meta",
            is_coalesced=sorted_,
        )
    made: torch.Tensor = FakeTensor(mode, bare, _CPU)
    return made


def _counted(func: Any, args: Any, kwargs: Any, out: FakeTensor) -> torch.Tensor:
    """The result with at most as many elements as its operands have together."""
    name = func._schema.name.partition("::")[2]
    if name in _KEEP:
        return out
    if name == "_embedding_bag_backward":  # a row for each index
        rows = torch.empty((int(args[1].numel()), *out.shape[1:]), dtype=out.dtype)
        at = args[1].reshape(1, -1)
        return _joined(at, rows, tuple(out.shape), out.fake_mode, sorted_=False)
    given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    sparse = [leaf for leaf in given if leaf.layout is torch.sparse_coo]
    unclear = len(sparse) != 1 and name.rstrip("_") not in ("add", "sub")
    if name not in _ELEMENTWISE or out.layout is not torch.sparse_coo or unclear:
        raise ModelError(
            f"how many elements a sparse result of {name!r} has cannot be known without values",
            hint="measure the step for real: peakfold measure --runtime torch --train",
        )
    count = sum(int(one._nnz()) for one in sparse)
    first = sparse[0]
    indices = torch.empty((first.sparse_dim(), count), dtype=torch.int64)
    values = torch.empty((count, *first.shape[first.sparse_dim() :]), dtype=out.dtype)
    ordered = name == "_coalesce" or (len(sparse) == 1 and first.is_coalesced())
    made = _joined(indices, values, tuple(out.shape), out.fake_mode, sorted_=ordered)
    if not name.endswith("_"):
        return made
    with in_kernel_invocation_manager(out.fake_mode):
        _aten.copy_sparse_to_sparse_.default(out, made)
    return out
