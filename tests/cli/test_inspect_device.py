"""`peakfold inspect --device`."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import onnx
import pytest
from onnx import TensorProto, helper

from tests.conftest import ROOT

from .conftest import Call, error_line

FC = (
    "peakfold-graph 1\ninput x: float32[1,4096]\nparameter w: float32[4096,1000]\n"
    "y: float32[1,1000] = matmul(x, w)\noutput y\n"
)


@pytest.fixture
def fc(tmp_path: Path) -> Path:
    path = tmp_path / "fc.pf"
    path.write_text(FC, "utf-8")
    return path


@pytest.mark.req("R79", "R77")
def test_time_and_bound_in_text_and_json(call: Call, fc: Path) -> None:
    text = " ".join(call("inspect", fc, "--device", "t4", "--measured", "0.0001").stdout.split())
    assert "Time on NVIDIA T4" in text
    assert "54.68 us" in text
    assert "100% memory" in text
    assert "roofline only: no measurements of this device" in text
    assert "58 from here on half" in text
    document = json.loads(
        call("inspect", fc, "--device", "t4", "--measured", "0.0001", "--json").stdout
    )
    schema = json.loads((ROOT / "docs/schema/inspect.json").read_text("utf-8"))
    jsonschema.validate(document, schema)
    seconds = 16_404_384 / 3e11
    assert document["totals"]["time_s"] == pytest.approx(seconds)
    assert [(op["time_s"], op["bound"]) for op in document["ops"]] == [
        (pytest.approx(seconds), "memory")
    ]
    timing = document["timing"]
    assert timing["transfer_s"] == pytest.approx(4 * 5096 / 15.75e9)
    assert (timing["basis"], timing["bound"], timing["error"]) == ("roofline", "memory", None)
    assert (timing["turning_batch"], timing["ridge"]) == (58, {"vector float32": 27.0})
    assert timing["utilisation"] == pytest.approx(8_192_000 / 0.0001 / 8.1e12)
    assert timing["utilisation_of"] == "vector float32"


@pytest.mark.req("R77")
def test_a_time_that_no_run_can_have_is_marked(call: Call, fc: Path) -> None:
    floor = 8_192_000 / 8.1e12
    for seconds, possible in ((floor * 0.99, False), (floor * 1.01, True)):
        args = ("inspect", fc, "--device", "t4", "--measured", seconds)
        timing = json.loads(call(*args, "--json").stdout)["timing"]
        assert timing["least_s"] == pytest.approx(floor)
        assert timing["measured_possible"] is possible
        assert ("IMPOSSIBLE" in call(*args).stdout) is not possible
    unmeasured = json.loads(call("inspect", fc, "--device", "t4", "--json").stdout)["timing"]
    assert unmeasured["measured_possible"] is None


def test_what_is_not_known_hides_the_turning_batch(call: Call, tmp_path: Path) -> None:
    path, device = tmp_path / "strange.pf", tmp_path / "board.toml"
    path.write_text(FC.replace("matmul", "warp"), "utf-8")
    text = " ".join(call("inspect", path, "--device", "t4").stdout.split())
    assert "never" not in text
    assert "turning batch ? not known: arithmetic, traffic or peak of 1 op" in text
    device.write_text(
        'title = "b"\nkind = "mcu"\n[peak.vector]\n'
        'float32 = { gflops = 1, source = "derived: a guess" }\n'
    )
    path.write_text(FC, "utf-8")
    text = " ".join(call("inspect", path, "--device", device).stdout.split())
    assert "turning batch ? not known: the device's memory bandwidth is not stated" in text
    found = json.loads(call("inspect", path, "--device", device, "--json").stdout)["timing"]
    assert found["turning_batch"] is None


def test_batch_sizes_are_swept(call: Call, fc: Path) -> None:
    args = ("inspect", fc, "--device", "t4", "--batches", "1,16,256")
    assert "Batch sizes" in call(*args).stdout
    sweep = json.loads(call(*args, "--json").stdout)["timing"]["sweep"]
    assert [row["batch"] for row in sweep] == [1, 16, 256]
    assert [row["roofline_s"] for row in sweep] == pytest.approx(
        [16_404_384 / 3e11, (16_384_000 + 16 * 20_384) / 3e11, 256 * 8_192_000 / 8.1e12]
    )
    assert [row["compute_share"] for row in sweep] == [0.0, 0.0, 1.0]


def test_without_a_device_no_time_is_told(call: Call, fc: Path) -> None:
    document = json.loads(call("inspect", fc, "--json").stdout)
    assert document["timing"] is None
    assert document["totals"]["time_s"] is None
    assert {op["time_s"] for op in document["ops"]} == {None}
    assert "Time on" not in call("inspect", fc).stdout


def test_an_estimate_shows_its_error(call: Call, fc: Path) -> None:
    args = ("inspect", fc, "--device", "rtx-4090:compiled")
    text = " ".join(call(*args).stdout.split())
    assert "median error" in text
    assert "on architectures not seen" in text
    assert "its split among ops not" in text
    assert "so here the error is not known" in text  # batch 1
    timing = json.loads(call(*args, "--json").stdout)["timing"]
    assert (timing["basis"], timing["precision"]) == ("fitted", "float16")
    assert timing["error"]["fit"] == "compiled"
    assert timing["error"]["extrapolated"] is True
    assert 0 < timing["error"]["held_out_median"] < timing["error"]["held_out_p90"]
    assert timing["time_s"] > 0
    assert timing["roofline_s"] == pytest.approx(8_202_192 / 1008e9)


def test_the_plot_is_written_as_its_name_says(call: Call, fc: Path, tmp_path: Path) -> None:
    assert call("inspect", fc, "--device", "t4", "--roofline", tmp_path / "r.svg").exit_code == 0
    ET.fromstring((tmp_path / "r.svg").read_text("utf-8"))
    assert call("inspect", fc, "--device", "t4", "--roofline", tmp_path / "r.png").exit_code == 0
    assert (tmp_path / "r.png").read_bytes()[:4] == b"\x89PNG"
    piped = call("inspect", fc, "--device", "t4", "--roofline", "-").stdout
    ET.fromstring(piped)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--device", "toaster"), "no device 'toaster'"),
        (("--device", "t4:eager"), "no latency model 'eager'"),
        (("--device", "t4", "--precision", "fp16"), "no element type 'fp16'"),
        (("--device", "none.toml"), "no such file"),
        (("--precision", "float16"), "a time needs a device"),
        (("--measured", "1"), "a time needs a device"),
        (("--device", "t4", "--measured", "0"), "not in the range"),
        (("--device", "t4", "--measured", "-1"), "not in the range"),
        (("--device", "t4", "--measured", "nan"), "must be a finite number"),
        (("--device", "t4", "--measured", "inf"), "must be a finite number"),
        (("--batches", "1"), "a time needs a device"),
        (("--device", "t4", "--batches", "1,0"), "are not numbers from 1 on"),
        (("--device", "t4", "--batches", "many"), "are not numbers from 1 on"),
        (("--device", "esp32-s3", "--batches", "1"), "have no time on this device"),
        (("--roofline", "r.svg"), "a roofline is that of a device"),
        (("--device", "t4", "--roofline", "r.gif"), "ends in neither .svg nor .png"),
        (("--device", "esp32-s3", "--measured", "1"), "no peak"),
        (("--device", "esp32-s3", "--roofline", "r.svg"), "bandwidth is not known"),
    ],
)
def test_mistakes_are_one_line(
    call: Call, fc: Path, flags: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fc.parent)
    result = call("inspect", fc, *flags)
    assert result.exit_code == 2
    assert message in error_line(result.stderr)
    assert result.stdout == ""
    assert not Path("r.svg").exists()


def test_a_device_of_which_little_is_known_says_so(call: Call, fc: Path) -> None:
    text = " ".join(call("inspect", fc, "--device", "esp32-s3").stdout.split())
    assert "nothing is known" in text
    assert "1 op without a known time" in text
    timing = json.loads(call("inspect", fc, "--device", "esp32-s3", "--json").stdout)["timing"]
    assert (timing["time_s"], timing["unknown_ops"]) == (None, 1)


def test_models_are_compared_on_a_device(call: Call, fc: Path, tmp_path: Path) -> None:
    wide = tmp_path / "wide.pf"
    wide.write_text(FC.replace("1000", "2000"), "utf-8")
    args = ("compare", fc, wide, "--no-peak", "--device", "t4")
    document = json.loads(call(*args, "--json").stdout)
    expected = [4 * (4096 + n + 4096 * n) / 3e11 for n in (1000, 2000)]
    assert [row["time_s"] for row in document["models"]] == pytest.approx(expected)
    assert document["device"] == "t4"
    assert "roofline only" in document["time_note"]
    text = " ".join(call(*args).stdout.split())
    assert "54.68 us" in text
    assert "time: on t4, roofline only" in text
    fitted = " ".join(call("compare", fc, wide, "--no-peak", "--device", "rtx-3090").stdout.split())
    assert "median error" in fitted
    wrong = call("compare", fc, wide, "--precision", "float16")
    assert wrong.exit_code == 2
    assert "a time needs a device" in error_line(wrong.stderr)


def test_the_time_of_a_loop_without_a_count_says_so(call: Call, tmp_path: Path) -> None:
    inner = helper.make_graph(
        [helper.make_node("MatMul", ["s", "w"], ["t"]), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("c", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, (4, 8)),
        ],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("t", TensorProto.FLOAT, (4, 8)),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], body=inner, name="steps")],
        "net",
        [
            helper.make_tensor_value_info("n", TensorProto.INT64, ()),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 8)),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 8))],
        [helper.make_tensor("w", TensorProto.FLOAT, (8, 8), bytes(256), raw=True)],
    )
    path = tmp_path / "loop.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    text = call("inspect", path, "--device", "t4").stdout
    assert "for one trip only: steps" in text.split("Time on")[1]
    told = call("inspect", path, "--device", "t4", "--trips", "steps=5").stdout
    assert "one trip only" not in told
    once, five = (
        json.loads(call("inspect", path, "--device", "t4", *more, "--json").stdout)
        for more in ((), ("--trips", "steps=5"))
    )
    assert five["totals"]["time_s"] == pytest.approx(5 * once["totals"]["time_s"])
