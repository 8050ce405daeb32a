# Each target sets up what it needs in .venv and can be run again.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test quick lint hooks bench test-deep test-lowest clean

# Ten networks on small digits, shared: `make demo`, or in JAX, `make demo BACKEND=jax`.
BACKEND ?= torch
DEMO_torch := examples/demo.py
DEMO_jax := examples/demo_jax.py
demo: $(READY)
	$(BIN)/python $(or $(DEMO_$(BACKEND)),$(error BACKEND must be torch or jax: found $(BACKEND)))

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

# Lint, types, and the core's tests with few examples: about a minute, for yourself, between two changes.
QUICK := network or planning or decomposition or execution or layers or models or files or house
quick: lint
	TNSHARE_QUICK=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q -m "$(QUICK)" -k "not jax and not compiled"

# The same before every push, and lint before every commit.
hooks: $(READY)
	$(BIN)/pre-commit install --hook-type pre-commit --hook-type pre-push

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e ".[peers]"
	$(BIN)/python -m benchmarks

# What is drawn at random, for as long as one likes: laws, models, trees or files. It goes on where it was.
PART ?= laws
MINUTES ?= 60
test-deep: $(READY)
	MINUTES=$(MINUTES) TNSHARE_MINUTES=$(MINUTES) $(BIN)/python tests/deep/$(or $(filter laws models trees files,$(PART)),$(error PART must be laws, models, trees or files: found $(PART))).py

# The same tests with the oldest versions that pyproject.toml allows.
test-lowest:
	$(MAKE) VENV=.venv-lowest CONSTRAINTS=constraints-lowest.txt .venv-lowest/.ready
	.venv-lowest/bin/python -m pytest -n 2 --dist worksteal -q

CONSTRAINTS ?= constraints.txt
$(READY): pyproject.toml $(CONSTRAINTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e ".[torch,jax,bench,dev]"
	touch $@

clean:
	rm -rf .venv .venv-lowest .hypothesis .mypy_cache .ruff_cache
