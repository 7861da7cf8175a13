"""Device presets against the published figures, and what happens to a user's bad file."""

from __future__ import annotations

import csv
import os
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakfold.device import ALIASES, MAX_BYTES, Device, device_names, load_device, read_device
from peakfold.errors import UsageError
from peakfold.ir.types import DTYPES
from peakfold.reports.records.device import figures_of

NAMES = device_names()


@pytest.mark.req("R4", "R72")
def test_the_hardware_of_the_lectures_is_there() -> None:
    wanted = {"k80", "p40", "v100-pcie", "t4", "v100s", "a100-80gb", "a100-40gb", "h100-sxm5",
              "h200-sxm", "l4", "l40s", "rtx-3090", "rtx-4090", "rtx-5090", "p100-pcie",
              "xeon-8180", "raspberry-pi-4", "raspberry-pi-5", "esp32-s3", "stm32h743",
              "jetson-agx-orin", "apple-m1"}  # fmt: skip
    assert wanted <= set(NAMES)
    assert {load_device(name).kind for name in NAMES} == {"gpu", "cpu", "edge", "soc", "sbc", "mcu"}


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_of_a_preset_has_a_source(name: str) -> None:
    found = figures_of(load_device(name))
    assert found
    for figure_name, figure in found:
        assert len(figure.source) > 10, figure_name


@pytest.mark.parametrize("name", NAMES)
def test_no_source_of_a_preset_is_left_over(name: str) -> None:
    text = resources.files("peakfold.device").joinpath(f"{name}.toml").read_text("utf-8")
    listed = set(tomllib.loads(text).get("sources", {}).values())
    used = {figure.source for _, figure in figures_of(load_device(name))}
    assert listed <= used


@pytest.mark.req("R74")
@pytest.mark.parametrize("name", NAMES)
def test_floats_have_flops_and_integers_have_ops(name: str) -> None:
    text = resources.files("peakfold.device").joinpath(f"{name}.toml").read_text("utf-8")
    for table in tomllib.loads(text).get("peak", {}).values():
        for dtype, rate in table.items():
            units = {"tflops", "gflops"} if "float" in dtype else {"tops", "gops"}
            assert len(units & set(rate)) == 1, dtype


@pytest.mark.req("R74", "R75", "R76")
def test_the_t4_is_what_its_data_sheet_says() -> None:
    t4 = load_device("t4")
    assert t4.peaks["vector"]["float32"].value == 8.1e12
    assert {k: v.value for k, v in t4.peaks["matrix"].items()} == {
        "float16": 65e12,
        "int8": 130e12,
        "int4": 260e12,
    }
    assert t4.memory is not None
    assert t4.bandwidth is not None
    assert t4.host_link is not None
    assert (t4.memory.value, t4.bandwidth.value, t4.host_link.value) == (16e9, 300e9, 15.75e9)
    assert "320" in t4.bandwidth.note
    # R76: cores x boost clock x 2, and 64 multiply-adds a cycle and tensor core.
    boost = t4.figures["boost"].value
    assert t4.figures["cores"].value * boost * 2 == pytest.approx(8.1e12, rel=0.01)
    assert t4.figures["matrix_cores"].value * 64 * 2 * boost == pytest.approx(65e12, rel=0.01)


@pytest.mark.req("R79")
def test_ridge_points_of_the_t4() -> None:
    t4 = load_device("t4")
    found = [t4.ridge("vector", "float32")]
    found += [t4.ridge("matrix", dtype) for dtype in ("float16", "int8", "int4")]
    assert found == pytest.approx([27.0, 216.667, 433.333, 866.667], abs=1e-3)


@pytest.mark.req("R4")
def test_slips_of_the_table_of_generations_are_put_right() -> None:
    k80 = load_device("k80")
    # One GPU of the board, in every figure, not a mixture.
    assert k80.figures["cores"].value == 2496
    assert k80.peaks["vector"]["float32"].value == pytest.approx(8.74e12 / 2)
    assert load_device("t4").peaks["matrix"]["float16"].value == 65e12
    assert load_device("a100-80gb").peaks["matrix"]["int8"].value == 624e12
    assert load_device("v100s").figures["power"].value == 250
    p100 = load_device("p100-sxm2")
    clock, cores = p100.figures["boost"].value, p100.figures["cores"].value
    assert cores * clock * 2 == pytest.approx(p100.peaks["vector"]["float32"].value, rel=2e-3)


@pytest.mark.shared
def test_presets_agree_with_the_table_of_sourced_figures(shared: Path) -> None:
    table = csv.DictReader((shared / "data/hardware/devices.csv").open())
    rows = {row["device"]: row for row in table}
    columns = {
        "fp32_tflops": ("vector", "float32"),
        "fp64_tflops": ("vector", "float64"),
        "fp16_tensor_tflops_dense_fp32acc": ("matrix", "float16"),
        "int8_tensor_tops_dense": ("matrix", "int8"),
    }
    seen = 0
    for device in map(load_device, NAMES):
        row = rows.get(device.title)
        if row is None:
            continue
        seen += 1
        for column, (engine, dtype) in columns.items():
            stated = {e: t for e, t in device.peaks.items() if e == engine}.get(engine, {})
            if row[column] and device.kind != "mcu":
                assert stated[dtype].value == pytest.approx(float(row[column]) * 1e12)
            elif device.kind != "mcu":
                assert dtype not in stated
        if row["memory_bandwidth_gbs"] and device.name != "t4":
            assert device.bandwidth is not None
            assert device.bandwidth.value == pytest.approx(float(row["memory_bandwidth_gbs"]) * 1e9)
        if row["sram_kib"]:
            assert device.memory is not None
            assert device.memory.value == float(row["sram_kib"]) * 1024
    assert seen == len(rows)


@pytest.mark.req("R73")
def test_who_stands_in_for_whom() -> None:
    t4, a100 = load_device("t4"), load_device("a100-80gb")
    rate = t4.rate("matrix", "float32")
    assert rate is not None
    assert (rate.engine, rate.dtype, rate.exact) == ("vector", "float32", False)
    # TensorFloat-32 is another arithmetic: float32 is never rated at it.
    rate = a100.rate("matrix", "float32")
    assert rate is not None
    assert rate.per_second == 19.5e12
    # Depthwise and softmax run on the vector engine, whatever the matrix engine can do.
    rate = a100.rate("vector", "float16")
    assert rate is not None
    assert (rate.engine, rate.per_second) == ("vector", 19.5e12)
    assert load_device("esp32-s3").rate("matrix", "int8") is None
    # A narrower accumulator stands in, and it is said.
    rate = load_device("rtx-3090").rate("matrix", "float16")
    assert rate is not None
    assert (rate.dtype, rate.exact) == ("float16_acc16", False)
    # Rates that need a pruned model are not used.
    assert load_device("jetson-orin-nx").rate("matrix", "int8") is None


@given(st.sampled_from(NAMES), st.sampled_from(sorted(DTYPES)))
def test_the_matrix_engine_is_never_slower_than_what_it_falls_back_to(
    name: str, dtype: str
) -> None:
    device = load_device(name)
    matrix, vector = device.rate("matrix", dtype), device.rate("vector", dtype)
    assert (matrix is None) <= (vector is None)
    if matrix is not None and vector is not None:
        assert matrix.per_second >= vector.per_second


@pytest.mark.parametrize("name", ["T4", "nvidia t4", "RTX 4090", "rtx4090", *ALIASES])
def test_names_as_people_write_them(name: str) -> None:
    assert isinstance(load_device(name), Device)


BAD = {
    "= 1": "is no TOML",
    "speed = 1": "unknown key 'speed' at the top",
    "title = 3": "title is 3, not a text",
    'kind = "toaster"': "unknown kind 'toaster'",
    "notes = 3": "notes is not a list",
    "memory = 3": "memory is not a table",
    "[memory]\nsize = 3": "memory.size has no unit (write size = { gb = ... })",
    "[memory]\nsize = { gb = 1, kib = 2 }": "memory.size needs one of",
    "[memory]\nsize = { gb = -1 }": "memory.size.gb is -1, not a number above 0",
    "[memory]\nsize = { gb = 0 }": "leave out what is not known",
    "[memory]\nsize = { gb = true }": "not a number above 0",
    "[memory]\nsize = { gb = nan }": "not a number above 0",
    "[memory]\nsize = { gb = inf }": "not a number above 0",
    "[memory]\nsize = { gb = -inf }": "not a number above 0",
    "[memory]\nsize = { gb = 1e400 }": "not a number above 0",
    f"[memory]\nsize = {{ gb = {2**70} }}": "is a number of more than 62 bits, which no device has",
    f"[memory]\nsize = {{ gb = {10**4000} }}": "which no device has",
    f"[memory]\nsize = {{ gb = {'9' * 5000} }}": "is no TOML",
    f"[memory]\nsize = {{ gb = {2**60} }}": "which no device has",
    "[memory]\nbandwidth = { gb_s = 5e-324 }": "which no device has",
    f"title = {'[' * 5000}": "is no TOML: it nests too deeply",
    f"title = {2**5000}": "not a text",
    '[memory]\nsize = { gb = "1" }': "not a number above 0",
    "[memory]\nbandwith = { gb_s = 1 }": "unknown key 'bandwith' in [memory]",
    '[memory]\nsize = { gb = 1, source = "sheet" }': "names the unknown source 'sheet'",
    "[sources]\na = 3": "sources.a is 3, not a text",
    "[peak.tensor]\nfloat16 = { tflops = 1 }": "unknown key 'tensor' in [peak]",
    "[peak.vector]\nfp32 = { tflops = 1 }": "unknown element type 'fp32'",
    "[peak.vector]\nint8 = { tflops = 1 }": "an integer type has tops",
    "[peak.vector]\nfloat32 = { tops = 1 }": "a float type has tflops",
    "[peak.vector]\nfloat32 = 8.1": "has no unit",
    "[latency]": "latency is not a list of tables",
    "[[latency]]\nname = 'a'": "[[latency]] lacks source",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_file_is_one_clear_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(UsageError) as caught:
        load_device(str(path))
    message = str(caught.value)
    assert BAD[text] in message
    assert message.startswith(f"{path}: ")
    assert "\n" not in message


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        read_device(text, "x", "x.toml")
    except UsageError:
        return


def test_a_file_of_the_users(tmp_path: Path) -> None:
    path = tmp_path / "board.toml"
    path.write_text(
        'title = "Board"\nkind = "mcu"\n[peak.vector]\nint8 = { gops = 0.1 }\n'
        "[memory]\nsize = { kib = 256 }\nbandwidth = { gb_s = 0.4 }\n[chip]\nlaunch = { us = 3 }",
        "utf-8",
    )
    board = load_device(str(path))
    assert (board.name, board.title, board.kind) == ("board", "Board", "mcu")
    assert board.memory is not None
    assert board.launch is not None
    assert (board.memory.value, board.launch.value) == (262144.0, 3e-6)
    assert board.ridge("vector", "int8") == 0.25


@pytest.mark.parametrize("name", ["nosuch", "no/such.toml", ".", "t4.toml"])
def test_a_device_that_is_not_there(name: str) -> None:
    with pytest.raises(UsageError):
        load_device(name)


def test_a_file_that_is_none_or_has_no_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "large.toml").write_bytes(b"#" * (MAX_BYTES + 1))
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    for name in ("pipe", "zero", "folder", "large", "bytes"):
        with pytest.raises(UsageError, match=f"{name}.toml: "):
            load_device(str(tmp_path / f"{name}.toml"))
    (tmp_path / "marked.toml").write_bytes(b"\xef\xbb\xbftitle = 'x'")
    assert load_device(str(tmp_path / "marked.toml")).title == "x"
