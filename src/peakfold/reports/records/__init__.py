"""The JSON of every verb, as records: the contract's keys, exact bytes, `None` = not known.

The JSON Schemas in ``docs/schema`` are made from these types.
"""

from __future__ import annotations

import msgspec

from peakfold.analysis.graph.workspace_profile import Profile
from peakfold.planning.plan import Plan
from peakfold.printable import escape_json
from peakfold.reports.records.compare_rows import CompareDocument
from peakfold.reports.records.device import DevicesDocument
from peakfold.reports.records.eager import EagerDocument, MeasureForwardDocument
from peakfold.reports.records.formulas import (
    FormulaRecord,
    FormulasDocument,
    FormulaTerm,
    LayerRow,
    LayersDocument,
)
from peakfold.reports.records.handover import ApplyDocument, ControlRecord, MeasureDocument
from peakfold.reports.records.inspect import (
    BodyRecord,
    DynamicRecord,
    GroupRecord,
    InspectDocument,
    ModelRecord,
    OpRecord,
    PerSample,
    StaticRecord,
    Totals,
    UnsupportedKind,
)
from peakfold.reports.records.listings import KindRecord, OpsDocument, TargetRecord, TargetsDocument
from peakfold.reports.records.pack import (
    BankRecord,
    CulpritsRecord,
    FitDocument,
    LeverRecord,
    PackDocument,
)
from peakfold.reports.records.plan import (
    CheckRecord,
    ClaimRecord,
    DemoDocument,
    EdgeRecord,
    Given,
    LanesDocument,
    LanesRow,
    ModesDocument,
    ModesRow,
    PlanDocument,
    TraceStep,
    VerifyDocument,
)
from peakfold.reports.records.training import (
    AllocatorRecord,
    DevicePhase,
    MeasuredStep,
    MeasureTrainingDocument,
    TrainingDocument,
    TrainingFitDocument,
    TrainingLever,
    TrainingStep,
)

VERSIONS = {"compare": 2, "fit": 2, "plan-report": 2}
"""Of documents whose keys have changed their meaning; all others are at 1."""

Document = (
    PlanDocument | InspectDocument | VerifyDocument | OpsDocument | TargetsDocument | DemoDocument
    | LanesDocument | PackDocument | DevicesDocument | FitDocument | TrainingDocument
    | ModesDocument | TrainingFitDocument | MeasureTrainingDocument | LayersDocument
    | CompareDocument | ApplyDocument | MeasureDocument | Profile
    | FormulasDocument | EagerDocument | MeasureForwardDocument
)  # fmt: skip

DOCUMENTS: dict[str, type] = {
    "apply": ApplyDocument,
    "measure": MeasureDocument,
    "profile": Profile,
    "plan": Plan,
    "plan-report": PlanDocument,
    "compare": CompareDocument,
    "inspect": InspectDocument,
    "layers": LayersDocument,
    "formulas": FormulasDocument,
    "verify": VerifyDocument,
    "ops": OpsDocument,
    "targets": TargetsDocument,
    "demo": DemoDocument,
    "lanes": LanesDocument,
    "pack": PackDocument,
    "devices": DevicesDocument,
    "fit": FitDocument,
    "modes": ModesDocument,
    "training": TrainingDocument,
    "fit-training": TrainingFitDocument,
    "measure-training": MeasureTrainingDocument,
    "eager": EagerDocument,
    "measure-forward": MeasureForwardDocument,
}
"""Every JSON document by the name in its `schema` key and in ``docs/schema/NAME.json``."""


def schema_name(name: str) -> str:
    """The `schema` value of a document.

    Example:
        >>> schema_name("inspect")
        'peakfold.inspect/1'
    """
    return f"peakfold.{name}/{VERSIONS.get(name, 1)}"


def to_json(document: Document) -> str:
    """A document as indented JSON that ends in a newline; nothing unprintable stands in it."""
    return escape_json(msgspec.json.format(msgspec.json.encode(document), indent=2)).decode() + "\n"


__all__ = [
    "DOCUMENTS",
    "VERSIONS",
    "AllocatorRecord",
    "ApplyDocument",
    "BankRecord",
    "BodyRecord",
    "CheckRecord",
    "ClaimRecord",
    "ControlRecord",
    "CulpritsRecord",
    "DemoDocument",
    "DevicePhase",
    "Document",
    "DynamicRecord",
    "EagerDocument",
    "EdgeRecord",
    "FitDocument",
    "FormulaRecord",
    "FormulaTerm",
    "FormulasDocument",
    "Given",
    "GroupRecord",
    "InspectDocument",
    "KindRecord",
    "LanesDocument",
    "LanesRow",
    "LayerRow",
    "LayersDocument",
    "LeverRecord",
    "MeasureDocument",
    "MeasureForwardDocument",
    "MeasureTrainingDocument",
    "MeasuredStep",
    "ModelRecord",
    "ModesDocument",
    "ModesRow",
    "OpRecord",
    "OpsDocument",
    "PackDocument",
    "PerSample",
    "PlanDocument",
    "StaticRecord",
    "TargetRecord",
    "TargetsDocument",
    "Totals",
    "TraceStep",
    "TrainingDocument",
    "TrainingFitDocument",
    "TrainingLever",
    "TrainingStep",
    "UnsupportedKind",
    "VerifyDocument",
    "schema_name",
    "to_json",
]
