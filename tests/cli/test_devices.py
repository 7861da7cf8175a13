"""`peakfold devices`."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from peakfold.device import device_names
from tests.conftest import ROOT

from .conftest import Call, error_line


@pytest.mark.req("R4")
def test_the_table_names_every_device_and_shows_the_growth(call: Call) -> None:
    text = call("devices").stdout
    lines = text.splitlines()
    assert all(any(line.startswith(f"{name} ") for line in lines) for name in device_names())
    assert all(len(line) <= 80 for line in lines)
    assert "compute has outgrown memory" in text
    (b200,) = (line for line in lines if line.startswith("b200") and "2024" in line)
    # 2250e12 / 4.37e12 and 180 / 12.
    assert b200.split()[-3:] == ["514.9x", "15.0x", "34.3"]


def test_one_device_with_its_sources(call: Call) -> None:
    text = call("devices", "T4").stdout
    assert "8.1 TFLOP/s" in text
    assert "130 TOP/s" in text
    assert "300 GB/s" in text
    assert "derived: 16 lanes" in " ".join(text.split())
    assert "27.0 operations a byte" in text


def test_json_follows_its_schema(call: Call) -> None:
    schema = json.loads((ROOT / "docs/schema/devices.json").read_text("utf-8"))
    document = json.loads(call("devices", "--json").stdout)
    jsonschema.validate(document, schema)
    assert [device["name"] for device in document["devices"]] == list(device_names())
    assert document["generations"][0]["ratio"] == 1.0
    (esp,) = (d for d in document["devices"] if d["name"] == "esp32-s3")
    # Not known is null, never 0.
    assert esp["float32_flops"] is None
    assert esp["memory_bytes"] == 524288


def test_a_file_of_ones_own(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "board.toml"
    path.write_text('title = "\\u001b[31mred"\n[memory]\nsize = { kib = 64 }\n', "utf-8")
    result = call("devices", path)
    assert "64 KiB" in result.stdout
    assert "\x1b" not in result.stdout
    path.write_text("[memory]\nsize = 64\n", "utf-8")
    result = call("devices", path)
    assert result.exit_code == 2
    assert "memory.size has no unit" in error_line(result.stderr)
    assert call("devices", "nosuch").exit_code == 2
