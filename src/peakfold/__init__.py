"""peakfold: plan a neural network's memory, and prove the plan.

    import peakfold
    result = peakfold.plan("model.onnx", dims={"batch": 1})
    print(result)                                   # before, after, the peak
    result.save("model.plan.json")
    assert peakfold.verify("model.onnx", "model.plan.json")

Names are loaded when they are first used: importing peakfold loads no framework.
"""

from __future__ import annotations

TYPE_CHECKING = False  # without `typing`: a Ctrl-C finds the less to hit at the start
if TYPE_CHECKING:
    from peakfold.app.apply import apply as apply
    from peakfold.app.inspect import cost as cost
    from peakfold.app.inspect import inspect as inspect
    from peakfold.app.inspect import load as load
    from peakfold.app.measure import measure as measure
    from peakfold.app.plan import plan as plan
    from peakfold.app.plan import verify as verify
    from peakfold.errors import BackendMissing as BackendMissing
    from peakfold.errors import DoesNotFit as DoesNotFit
    from peakfold.errors import InvalidPlan as InvalidPlan
    from peakfold.errors import ModelError as ModelError
    from peakfold.errors import PeakfoldError as PeakfoldError
    from peakfold.errors import TimeLimit as TimeLimit
    from peakfold.errors import UsageError as UsageError
    from peakfold.frontends.torch.module import Example as Example
    from peakfold.ir import Graph as Graph
    from peakfold.packing import pack as pack
    from peakfold.planning import Plan as Plan
    from peakfold.planning import PlanOptions as PlanOptions
    from peakfold.planning import Summary as Summary

    __version__: str

_HOME = {
    "cost": "app.inspect", "inspect": "app.inspect", "load": "app.inspect",
    "apply": "app.apply", "measure": "app.measure",
    "plan": "app.plan", "verify": "app.plan", "pack": "packing", "Graph": "ir",
    "Example": "frontends.torch.module",
    "Plan": "planning", "PlanOptions": "planning", "Summary": "planning",
    "BackendMissing": "errors", "DoesNotFit": "errors", "InvalidPlan": "errors",
    "ModelError": "errors", "PeakfoldError": "errors", "TimeLimit": "errors",
    "UsageError": "errors",
}  # fmt: skip

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("peakfold")
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(f"peakfold.{_HOME[name]}"), name)
    raise AttributeError(f"module 'peakfold' has no attribute {name!r}")
