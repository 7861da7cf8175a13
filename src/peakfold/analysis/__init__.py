"""Graph -> facts: index, schedule lifetimes, alias facts, bounds. No choices are made here."""

from peakfold.analysis.cost.counting import cost_of
from peakfold.analysis.cost.records import Cost, CostOptions, Figures, OpCost, Total
from peakfold.analysis.graph.alias_facts import Facts, op_facts
from peakfold.analysis.graph.any_order_bound import any_order_bound, op_bound
from peakfold.analysis.graph.index import Index, is_opaque, static_bytes
from peakfold.analysis.graph.region_slots import slot_bytes
from peakfold.analysis.graph.schedule import Policies, Schedule, file_order, make_schedule
from peakfold.ops.doubts import unsupported

__all__ = [
    "Cost",
    "CostOptions",
    "Facts",
    "Figures",
    "Index",
    "OpCost",
    "Policies",
    "Schedule",
    "Total",
    "any_order_bound",
    "cost_of",
    "file_order",
    "is_opaque",
    "make_schedule",
    "op_bound",
    "op_facts",
    "slot_bytes",
    "static_bytes",
    "unsupported",
]
