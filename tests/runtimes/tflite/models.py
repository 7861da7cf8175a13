"""The shared models the interpreter runs: as shipped, or with their half weights folded."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from peakfold.runtimes.tflite.rewrite import Edit, rewrite
from peakfold.runtimes.tflite.schema import has_data, operator_name, parse_model
from tests.conftest import SHARED

SHIPPED = (
    "models/tflite/audio_preprocessor_int8",
    "models/tflite/basic_pitch_nmp",
    "models/tflite/dtln_noise_suppression",
    "models/tflite/hello_world_float",
    "models/tflite/hello_world_int8",
    "models/tflite/keyword_scrambled_8bit",
    "models/tflite/micro_speech_quantized",
    "models/tflite/mobilenet_v2_quantized_1x3x224x224",
    "models/tflite/mww_alexa",
    "models/tflite/mww_hey_jarvis",
    "models/tflite/mww_hey_mycroft",
    "models/tflite/person_detect",
    "models/tflite/trained_lstm_int8",
    "data/mlperf_tiny/ad01_fp32",
    "data/mlperf_tiny/ad01_int8",
    "data/mlperf_tiny/kws_ref_model",
    "data/mlperf_tiny/pretrainedResnet",
    "data/mlperf_tiny/pretrainedResnet_large_int8",
    "data/mlperf_tiny/vww_96_float",
)
FOLDED = (
    "models/tflite/face_detection_back",
    "models/tflite/face_detection_short_range",
    "models/tflite/pose_landmark_lite",
)


def path_of(name: str) -> Path:
    return SHARED / f"{name}.tflite"


@cache
def runnable(name: str) -> bytes:
    """The bytes of a model the interpreter can run."""
    data = path_of(name).read_bytes()
    if name not in FOLDED:
        return data
    model = parse_model(data)
    graph = model.subgraphs[0]
    kept = [
        at
        for at, op in enumerate(graph.operators)
        if operator_name(model, op) != "DEQUANTIZE"
        or not has_data(model, graph.tensors[op.inputs[0]])
    ]
    return rewrite(data, Edit(order={0: kept}))
