"""Requirement ids and the tests that prove them: `docs/requirements.md`, written or checked.

    python tools/trace.py --write    rewrite the table
    python tools/trace.py --check    fail when an id has no test, or the table is out of date

Tests name their ids with ``@pytest.mark.req("R22", "EX1")``. The ids that must be covered are
listed in `docs/requirements.toml`, each with the words of the requirement.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "requirements.md"
WANTED = ROOT / "docs" / "requirements.toml"


def marked(path: Path) -> Iterator[tuple[str, str]]:
    """Pairs (id, test) of one test file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.req":
                for argument in decorator.args:
                    yield ast.literal_eval(argument), f"{path.relative_to(ROOT)}::{node.name}"


def table() -> tuple[str, list[str]]:
    """The table's text, and what is wrong."""
    wanted: dict[str, str] = tomllib.loads(WANTED.read_text("utf-8"))["requirements"]
    proven: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name, test in marked(path):
            proven.setdefault(name, []).append(test)
    rows = [
        "# Requirements and the tests that prove them",
        "",
        "Written by `make trace` from the tests' `req` marks; checked in CI.",
        "",
        "| id | requirement | tests |",
        "|---|---|---|",
    ]
    for name, words in wanted.items():
        tests = "<br>".join(f"`{test}`" for test in sorted(set(proven.get(name, ()))))
        rows.append(f"| {name} | {words} | {tests or '**none**'} |")
    problems = [f"no test proves {name}: {wanted[name]}" for name in wanted if name not in proven]
    problems += [
        f"{proven[name][0]} proves {name}, which docs/requirements.toml does not list"
        for name in sorted(set(proven) - set(wanted))
    ]
    return "\n".join(rows) + "\n", problems


def main(argument: str) -> int:
    text, problems = table()
    if argument == "--write":
        TABLE.write_text(text, "utf-8")
    elif not TABLE.is_file() or TABLE.read_text("utf-8") != text:
        problems.append("docs/requirements.md is out of date: run `make trace`")
    for problem in problems:
        print(f"trace: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "--check"))
