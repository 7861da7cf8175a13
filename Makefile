# make demo: from a fresh machine to the main job on a real model.
# make test: all set-up and every check that CI runs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: bench-cost demo test lint tests bounds wheel trace bench fuzz oracles check-cuda clean

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("peakfold needs Python 3.11 or newer, not " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/peakfold demo --force peakfold-demo

# Group by group, with the minutes that each took.
test: $(READY)
	@for group in lint tests bounds wheel; do \
	  start=$$(date +%s); \
	  $(MAKE) --no-print-directory $$group || exit 1; \
	  echo "$$group: $$(( ($$(date +%s) - start + 3) / 6 ))" | sed 's/\([0-9]\)$$/.\1 minutes/; s/: \./: 0./'; \
	done

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/trace.py --check

tests: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile

# Compiled kernels once more, with every index checked. Their cache is a folder of its own and
# starts empty, because numba does not see that a kernel in another file has changed.
bounds: $(READY)
	rm -rf build/numba-bounds
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CURDIR)/build/numba-bounds $(BIN)/python -m pytest -q tests/packing/test_kernels.py tests/packing/test_exact.py tests/packing/test_bounds_checks.py

# The built wheel, not the checkout: installed into a folder of its own that shadows `src`.
wheel: $(READY)
	rm -rf build/wheel dist
	$(BIN)/python -m build --wheel --no-isolation --outdir dist . >/dev/null
	$(BIN)/python -m pip install --quiet --no-deps --target build/wheel dist/peakfold-*.whl
	cd build && PYTHONPATH=$(CURDIR)/build/wheel $(CURDIR)/$(BIN)/python -c 'import peakfold, sys; sys.exit("wheel/peakfold" not in peakfold.__file__)'
	PYTHONPATH=$(CURDIR)/build/wheel $(BIN)/python -m pytest -q -n 2 --dist loadfile tests/cli -p no:cacheprovider $(addprefix --ignore=tests/cli/test_,torch_training.py hostile_names.py signals.py nesting.py)

# The table of requirement ids and the tests that prove them.
trace: $(READY)
	$(BIN)/python tools/trace.py --write

bench: $(READY)
	$(BIN)/python benchmarks/bench_scale.py
	$(BIN)/python benchmarks/bench_models.py

# Broken files and wrong plans, all of them; CI walks a tenth of less (tests/fuzzing).
FUZZ_COUNT ?= 10000
fuzz: $(READY)
	$(BIN)/python tools/fuzz.py --count $(FUZZ_COUNT)

# Real runtimes as oracles, the whole of each: sizes of all tensors against what ONNX Runtime runs,
# the whole arena against TensorFlow Lite Micro. CI runs a tenth of both.
oracles: $(READY)
	$(BIN)/python tools/oracles.py
	$(BIN)/python tools/oracle_tflm.py
	$(BIN)/python tools/oracle_torch_ops.py
	$(BIN)/python tools/oracle_families.py

# Every figure told of a CUDA card against one, and snapshots of its allocator; without a card it
# says so and is over. PYTHON_CUDA: a Python that has PyTorch with CUDA and peakfold's dependencies.
PYTHON_CUDA ?= $(BIN)/python
check-cuda: $(READY)
	PYTHONPATH=src $(PYTHON_CUDA) benchmarks/check_cuda.py

# MACs and parameters of torchvision and timm models against a recount; an environment of its own.
build/zoo/.ready:
	$(PYTHON) -m venv build/zoo
	build/zoo/bin/python -m pip install --quiet torch==2.14.1 torchvision==0.29.1 timm==1.0.31 -e .
	touch $@

bench-cost: build/zoo/.ready
	build/zoo/bin/python benchmarks/bench_cost.py --only torchvision
	build/zoo/bin/python benchmarks/bench_cost.py --only timm --route trace
	build/zoo/bin/python benchmarks/bench_cost.py --table

clean:
	rm -rf $(VENV) build dist peakfold-demo
