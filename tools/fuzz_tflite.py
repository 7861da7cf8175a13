"""Fuzz the `.tflite` front end: ``python tools/fuzz_tflite.py [ROUNDS] [FIRST_SEED]``.

Every round mutates a real model (bytes and structure in turn), loads, plans and judges it. The
run stops at the first file that ends in anything but a sound plan or one clean error, takes more
than ten seconds of CPU time or makes the process grow beyond its limit, and keeps that file.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.frontends.mutate_tflite import mutate_bytes, mutate_structure  # noqa: E402 - needs the path
from tests.frontends.test_tflite_fuzz import outcome, seeds  # noqa: E402 - the same

LIMIT = 4 << 30
"""Bytes of address space; numba and its compiler take most of it."""


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    models = seeds(ROOT.parent / "shared")
    seen: Counter[str] = Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutant.tflite"
        for number in range(first, first + rounds):
            rng = random.Random(number)
            mutate = mutate_bytes if number % 2 else mutate_structure
            data = mutate(rng.choice(models), rng)
            path.write_bytes(data)
            start = time.process_time()
            try:
                seen[outcome(path)] += 1
            except BaseException:  # the file is kept whatever it was, then it goes on up
                kept = Path(f"mutant-{number}.tflite")
                kept.write_bytes(data)
                print(f"round {number}: kept {kept}", file=sys.stderr)
                raise
            slowest = max(slowest, time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{rounds} files: {dict(seen)}; slowest {slowest:.2f} s, peak {peak:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
