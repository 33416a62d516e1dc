.DEFAULT_GOAL := help
BIN := .venv/bin
STAMP := .venv/.installed
# Markers to leave out; `make test NOCKA_TEST_ALL=1` runs everything (`real` needs scripts/fetch_smollm2.py first).
NOCKA_TEST_ALL ?=
PYTEST_ARGS ?=
SELECTED = -m "not chaos$(if $(NOCKA_TEST_ALL),, and not real and not slow)"

.PHONY: help setup demo check format test chaos bench bench-smoke lock

help:
	@echo "make setup   create .venv and install nocka with its tools"
	@echo "make demo    run the main job on examples/ with the models that ship here (under 3 minutes)"
	@echo "make check   format, lint, types, import contracts, the map"
	@echo "make test    setup, check and the tests"
	@echo "make chaos   kill workers and brokers for about ten minutes, and print what came of it"
	@echo "make bench   measure nocka beside what a user would pick instead (about an hour and a half; installs PyTorch)"
	@echo "make bench-smoke   its short form, compared with bench/expected.json"
	@echo "make format  let ruff rewrite what it can"
	@echo "make lock    write constraints.txt from .venv"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@python=$$(scripts/find_python.sh) && { [ -x $(BIN)/python ] || "$$python" -m venv .venv; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup
	@$(BIN)/python scripts/demo.py

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_map.py

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: setup check
	LD_PRELOAD="$$(scripts/blas.sh)" $(BIN)/python -m pytest $(SELECTED) $(PYTEST_ARGS)

chaos: setup
	LD_PRELOAD="$$(scripts/blas.sh)" scripts/with_postgres.sh $(BIN)/python -m pytest -q -s -m chaos tests/chaos $(PYTEST_ARGS)

bench: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	LD_PRELOAD="$$(scripts/blas.sh)" $(BIN)/python -m bench --json build/bench.json

bench-smoke: setup
	LD_PRELOAD="$$(scripts/blas.sh)" $(BIN)/python -m bench --smoke

lock: setup
	$(BIN)/python scripts/lock.py > constraints.tmp && mv constraints.tmp constraints.txt
