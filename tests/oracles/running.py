"""An ONNX model run by ONNX Runtime with every value of its graph as a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper


class NotRun(Exception):
    """ONNX Runtime does not run the model; says why."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A tensor that a run made: its bytes as they lie in memory, `None` for strings."""

    dims: tuple[int, ...]
    nbytes: int | None


@dataclass(frozen=True, slots=True)
class Sparse:
    """A sparse operand: its shape, and the values that are not zero, at pairs of indices."""

    shape: tuple[int, ...]
    values: np.ndarray
    indices: np.ndarray


def kernels() -> set[tuple[str, str]]:
    """Domain and name of every operator beyond the standard that has a kernel for the CPU."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return {
        (kernel.domain, kernel.op_name)
        for kernel in state.get_all_opkernel_def()
        if kernel.provider == "CPUExecutionProvider" and kernel.domain.startswith("com.microsoft")
    }


def session(model: ModelProto | str, optimised: int = 0, saved: str = "") -> Any:
    """A session on one thread.

    Args:
        model: a model or the path of one.
        optimised: 0 = not at all, 1 = basic, 2 = extended, 3 = all.
        saved: where ONNX Runtime writes what it made of the model.

    Raises:
        NotRun: no kernel, or an invalid model in ONNX Runtime's view.
    """
    import onnxruntime as ort

    levels = ort.GraphOptimizationLevel
    options = ort.SessionOptions()
    options.graph_optimization_level = (
        levels.ORT_DISABLE_ALL,
        levels.ORT_ENABLE_BASIC,
        levels.ORT_ENABLE_EXTENDED,
        levels.ORT_ENABLE_ALL,
    )[optimised]
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if saved:
        options.optimized_model_filepath = saved
    given = model if isinstance(model, str) else model.SerializeToString()
    try:
        return ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the bindings raise classes of their own
        raise NotRun(_line(error)) from None


def run(
    model: ModelProto, feeds: Mapping[str, Any], shared: Mapping[str, str] | None = None
) -> dict[str, Ran]:
    """Sizes of all tensors that the nodes of the outermost graph make.

    Nothing is optimised, so that every value of the file exists. Sequences, maps and optionals
    are left out: no graph states their size.

    Args:
        model: with every value named.
        feeds: arrays, stored tensors, lists of arrays, or `None` for an absent optional.
        shared: results that lie where an input lies.

    Raises:
        NotRun: as `session`, or a run that failed.
    """
    from onnxruntime import OrtValue

    running = session(_all_shown(model))
    wanted = [value.name for value in running.get_outputs()]
    try:
        given = {i.name: _feed(feeds[i.name]) for i in running.get_inputs()}
        tensors = all(isinstance(value, OrtValue) for value in given.values())
        if shared:
            made = _bound(running, given, shared)
        else:
            made = (running.run_with_ort_values if tensors else running.run)(wanted, given)
    except Exception as error:
        raise NotRun(_line(error)) from None
    sizes = {name: _size(value) for name, value in zip(wanted, made, strict=True)}
    return {name: size for name, size in sizes.items() if size is not None}


def _bound(running: Any, given: Mapping[str, Any], shared: Mapping[str, str]) -> Sequence[Any]:
    binding = running.io_binding()
    for name, value in given.items():
        binding.bind_ortvalue_input(name, value)
    for result in running.get_outputs():
        if result.name in shared:
            binding.bind_ortvalue_output(result.name, given[shared[result.name]])
        else:
            binding.bind_output(result.name, "cpu")
    running.run_with_iobinding(binding)
    made: Sequence[Any] = binding.get_outputs()
    return made


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:900]


def _all_shown(model: ModelProto) -> ModelProto:
    """The model with every result of its nodes as an output, those it had first."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    had = {value.name for value in shown.graph.output} | {v.name for v in shown.graph.input}
    for node in shown.graph.node:
        for name in node.output:
            if name and name not in had:
                had.add(name)
                shown.graph.output.add(name=name)
    return shown


def _feed(value: Any) -> Any:
    """What a session takes for a value; an `OrtValue` for a tensor of numbers."""
    import onnxruntime as ort

    if value is None:
        return None
    if isinstance(value, Sparse):
        here = ort.OrtDevice.make("cpu", 0)
        made = ort.SparseTensor.sparse_coo_from_numpy(
            np.array(value.shape), value.values, value.indices, here
        )
        return ort.OrtValue.ort_value_from_sparse_tensor(made)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [np.asarray(part) for part in value]
    if isinstance(value, TensorProto):
        code, value = value.data_type, onnx.numpy_helper.to_array(value)
    else:
        value = np.asarray(value)
        code = helper.np_dtype_to_tensor_dtype(value.dtype) if value.dtype != object else 8
    if value.dtype.kind in "OUS":
        return value.astype(object)
    value = np.require(value, requirements="C")
    if value.dtype.isbuiltin == 1:
        return ort.OrtValue.ortvalue_from_numpy(value)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(value, code)


def _size(value: Any) -> Ran | None:
    if isinstance(value, np.ndarray):
        return Ran(value.shape, None if value.dtype.kind in "OUS" else value.nbytes)
    if hasattr(value, "is_tensor") and value.has_value() and value.is_tensor():
        text = value.data_type() == "tensor(string)"
        return Ran(tuple(value.shape()), None if text else value.tensor_size_in_bytes())
    return None
