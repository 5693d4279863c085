# Every target sets up what it needs on a fresh machine, once: .venv/stamp-* say what is there.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2

CLIENTS := $(VENV)-clients
BIN := $(VENV)/bin
TORCH := torch==2.13.0
# constraints.txt has the versions that the suite passed with: a release of today can't break it.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --constraint constraints.txt

# One thread a process: the workers share the cores, and timings compare like with like.
export OMP_NUM_THREADS ?= 1
export PIP_NO_INPUT = 1

.PHONY: test view-browser test-one-process test-modes fuzz fuzz-programs fuzz-flow generation killtest stress test-machine demo bench sweep sweep-onnx onnx-models sweep-models joint-models model-shapes round-trips torchscript clients docs lint format dist clean

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) -q
	$(BIN)/python -m pytest -n $(WORKERS) -q --doctest-modules tintype

# The pages of tintype view in a real browser: Chromium, which this does not install.
view-browser: $(VENV)/stamp-test
	$(BIN)/python -m pytest -q tests/view/in_browser.py

# All tests one after the other in one process, forwards and backwards: none may hang on what another left behind.
test-one-process: $(VENV)/stamp-test
	$(BIN)/python -m pytest -q
	$(BIN)/python -m pytest -q --backwards

# The behaviour suite with every program saved and loaded, decomposed and captured again, alone and after each other.
BEHAVIOUR := tests/export tests/trace tests/ir tests/ops tests/transforms
test-modes: $(VENV)/stamp-test
	TINTYPE_ALL_MODES=1 $(BIN)/python -m pytest -n $(WORKERS) -q $(BEHAVIOUR)
	$(BIN)/python -m pytest -n $(WORKERS) -q --through saved $(BEHAVIOUR)
	$(BIN)/python -m pytest -n $(WORKERS) -q --through strict $(BEHAVIOUR)

# The machine against CPython's own tests, on every Python that is found.
test-machine: $(VENV)/stamp-test
	$(BIN)/python -m tests.interpret.cpython --workers $(WORKERS)

# Random Python functions whose control flow the data decide, against eager mode.
fuzz-flow: $(VENV)/stamp-test
	$(BIN)/python -m tests.flow.random_programs 5000
	$(BIN)/python -m tests.flow.wider_programs 2000

# Damaged files, and saves that are killed; docs/reliability.md has the figures.
fuzz: $(VENV)/stamp-test
	$(BIN)/python -m tests.reliability.fuzz --count 200000

# Random programs, in every variant, against eager mode.
fuzz-programs: $(VENV)/stamp-test
	$(BIN)/python -m tests.fuzz_programs --count 20000 --workers $(WORKERS)

# Language models: prefill and decode against eager mode and generate(), at other sizes, saved, decomposed.
generation: $(VENV)/stamp-test
	$(BIN)/python -m tests.generation --write

killtest: $(VENV)/stamp-test
	$(BIN)/python -m tests.reliability.kill --count 200

# Threads that export, train, ask and write at the same time.
stress: $(VENV)/stamp-test
	$(BIN)/python -m tests.reliability.threads --rounds 1000

lint: $(VENV)/stamp-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/stamp-test
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

demo: $(VENV)/stamp-base
	$(BIN)/python examples/demo.py

bench: $(VENV)/stamp-bench
	$(BIN)/python -m benchmarks.import_time --write
	$(BIN)/python -m benchmarks.call_overhead --torch --write
	$(BIN)/python -m benchmarks.growth --write
	$(BIN)/python -m benchmarks.control_flow --write
	$(BIN)/python -m benchmarks.big_model --write
	$(BIN)/python -m benchmarks.compare --write
	$(BIN)/python -m benchmarks.compare --dynamic --write
	$(BIN)/python -m benchmarks.files --write
	$(BIN)/python -m benchmarks.big_weights --write
	$(BIN)/python -m benchmarks.saved_memory --write

sweep: $(VENV)/stamp-test
	$(BIN)/python -m tests.sweep.opinfo

# torch's operators on ONNX Runtime; docs/onnx_operators.md has the list.
sweep-onnx: $(VENV)/stamp-test
	$(BIN)/python -m tests.sweep.onnx_operators --jobs $(WORKERS) --write

# The corpus's open models on ONNX Runtime, at two sizes each; docs/onnx.md has the table.
onnx-models: $(VENV)/stamp-test $(VENV)/stamp-bench
	$(BIN)/python -m tests.sweep.onnx_models --write

model-shapes: $(VENV)/stamp-test $(VENV)/stamp-bench
	$(BIN)/python -m tests.sweep.model_shapes --markdown docs/model_shapes.md

joint-models: $(VENV)/stamp-bench
	$(BIN)/python -m tests.sweep.joint_models

sweep-models: $(VENV)/stamp-test $(VENV)/stamp-bench
	$(BIN)/python -m tests.sweep.architectures

# TorchScript files of real models, converted here and by torch; docs/torchscript.md has the table.
torchscript: $(VENV)/stamp-test $(VENV)/stamp-bench
	$(BIN)/python -m benchmarks.torchscript --write

round-trips: $(VENV)/stamp-test $(VENV)/stamp-bench
	$(BIN)/python -m benchmarks.round_trips --task unflatten --write
	$(BIN)/python -m benchmarks.round_trips --task interop --write
	$(BIN)/python -m benchmarks.round_trips --task from_torch

# Other people's tools on our programs; docs/interop.md has the table. They pin much, so they live apart.
clients: $(CLIENTS)/stamp-clients
	$(CLIENTS)/bin/python -m tests.clients
	$(CLIENTS)/bin/python -m tests.clients.quantized_weights

# The pages and the reference as a site, in build/docs; a link that leads nowhere is an error.
docs: $(VENV)/stamp-docs
	rm -rf build/pages && mkdir -p build/pages && cp -rL README.md LICENSE docs examples benchmarks build/pages
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -c docs build/pages build/docs
	@echo 'open build/docs/docs/index.html'

# A wheel, in dist/; tests/test_package.py installs one and runs the demo.
dist: $(VENV)/stamp-torch
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) $(CLIENTS) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch comes first and alone: what is installed after it must take this one as it is.
$(VENV)/stamp-torch:
	@$(PYTHON) -c 'import sys; sys.exit("tintype needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	@touch $@

$(VENV)/stamp-base: $(VENV)/stamp-torch pyproject.toml constraints.txt
	$(PIP) $(TORCH) --editable .
	@touch $@

$(VENV)/stamp-test: $(VENV)/stamp-torch pyproject.toml constraints.txt
	$(PIP) $(TORCH) --editable '.[test]'
	@touch $(VENV)/stamp-base $@

$(VENV)/stamp-docs: $(VENV)/stamp-torch pyproject.toml constraints.txt
	$(PIP) $(TORCH) --editable '.[onnx,docs]'
	@touch $(VENV)/stamp-base $@

$(VENV)/stamp-bench: $(VENV)/stamp-torch pyproject.toml constraints.txt
	$(PIP) $(TORCH) --editable '.[bench]'
	@touch $(VENV)/stamp-base $@

$(CLIENTS)/stamp-clients: pyproject.toml
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-input $(TORCH)
	$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-input $(TORCH) --editable '.[clients]'
	@touch $@
