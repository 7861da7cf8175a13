"""Write the JSON Schemas of peakfold's documents from the types that produce them.

python tools/schemas.py            writes docs/schema/*.json
python tools/schemas.py --check    exits 1 when a file is not what the types say
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

from peakfold.reports.records import DOCUMENTS, schema_name

FOLDER = Path(__file__).parents[1] / "docs" / "schema"


def schema_text(name: str) -> str:
    """The JSON Schema of one document, as its file holds it."""
    kind = DOCUMENTS[name]
    schema = msgspec.json.schema(kind)
    body = schema["$defs"][kind.__name__]
    # The version is part of the contract, not any string.
    body["properties"]["schema"] = {"const": schema_name(name)}
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(whole, indent=2) + "\n"


def main(check: bool) -> int:
    stale = []
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in DOCUMENTS:
        path, text = FOLDER / f"{name}.json", schema_text(name)
        if path.exists() and path.read_text("utf-8") == text:
            continue
        stale.append(path.name)
        if not check:
            path.write_text(text, "utf-8")
    strange = sorted(p.name for p in FOLDER.glob("*.json") if p.stem not in DOCUMENTS)
    for name in stale:
        print(f"{'stale' if check else 'wrote'}: {name}")
    for name in strange:
        print(f"no document has this schema: {name}")
    return 1 if strange or (check and stale) else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
