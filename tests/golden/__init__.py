"""Golden files: text, tables and JSON of small graphs; `--update-golden` rewrites them."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def check(config: pytest.Config, name: str, text: str) -> None:
    """Compare a text with its golden file."""
    path = FOLDER / name
    if config.getoption("--update-golden"):
        path.write_text(text, "utf-8")
    assert path.exists(), f"no golden file {name}; run pytest --update-golden"
    assert text == path.read_text("utf-8"), f"{name} differs; pytest --update-golden rewrites it"
