"""Custom operators that files of this format carry often, by their custom codes.

TFLite Micro's signal library (its operators keep their parameters in custom options, which are
not read here, so shapes are the file's) and the post-processing of detectors. Those marked not
pure keep frames or estimates of their own from run to run, outside every graph.
"""

from __future__ import annotations

from typing import Final

from peakfold.ops.rules import per_input, per_output, unknown, zero
from peakfold.ops.spec import CountRule, OpSpec


def _signal(kind: str, other_ops: CountRule, *, pure: bool = True) -> OpSpec:
    # Scratch is the kernel's: a spectrum's is as long as its input.
    return OpSpec(kind, None, workspace=unknown, macs=zero, other_ops=other_ops, pure=pure)


ROWS: Final = (
    # A product and a shift with rounding per sample.
    _signal("signal_window", per_output(2)),
    # A maximum over the samples, then a shift of each.
    _signal("signal_fft_auto_scale", per_input(2)),
    _signal("signal_rfft", unknown),
    _signal("signal_irfft", unknown),
    # Two squares and a sum per complex element.
    _signal("signal_energy", per_output(3)),
    _signal("signal_filter_bank", unknown),
    _signal("signal_filter_bank_square_root", unknown),
    _signal("signal_filter_bank_spectral_subtraction", unknown, pure=False),
    _signal("signal_filter_bank_log", unknown),
    _signal("signal_pcan", unknown),
    _signal("signal_framer", zero, pure=False),
    _signal("signal_stacker", zero, pure=False),
    _signal("signal_delay", zero, pure=False),
    _signal("signal_overlap_add", unknown, pure=False),
    OpSpec("detection_postprocess", None, workspace=unknown, macs=zero, other_ops=unknown),
)
