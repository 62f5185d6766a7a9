# Every target sets up what it needs; on a fresh machine only Python 3.11+ and make are assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# 2.13.0 is the newest release the tests have seen; a CPU build serves as well as a CUDA one.
TORCH ?= torch==2.13.0
PIP := $(BIN)/pip --disable-pip-version-check --quiet
# pip compiles what it installs by one core, for more than a minute. Here all cores do, and leave out
# what is never imported: tests, and clients of asyncio. Some files are templates, or of Python 2.
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x '/(tests|kubernetes/aio)/' $(VENV)/lib || true
.DEFAULT_GOAL := help

.PHONY: help
help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(VENV)/.runtime: pyproject.toml
	@echo "setting up $(VENV) (first time: a few minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
# Under the name that it had, it would hold the same files.
	@$(PIP) uninstall --yes elastic 2>/dev/null
	@$(PIP) install --no-compile "$(TORCH)" scikit-learn
	@$(PIP) install --no-compile -e .
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@$(PIP) install --no-compile -e ".[dev,tensorflow,torch]" "$(TORCH)"
	@$(COMPILE)
	@touch $@

.PHONY: quickstart
quickstart: $(VENV)/.runtime ## Train on handwritten digits with two workers, one of which is killed
	@$(BIN)/python -m model_zoo.digits.quickstart

.PHONY: test
test: $(VENV)/.dev ## Run all checks and tests but the long chaos runs, and tell where the time went
# Where Python is told to write no bytecode, each of a thousand processes would compile all of it.
	@$(BIN)/python -m compileall -q elastic model_zoo tests/support
	@$(BIN)/python tests/run.py $(if $(LIMIT_MINUTES),--limit_minutes $(LIMIT_MINUTES))

.PHONY: lint
lint: $(VENV)/.dev ## Format, lint, types, layers, generated files
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m elastic.cli.reference | diff -u docs/flags.md - || (echo "docs/flags.md is stale: run make docs"; exit 1)
	@$(BIN)/python -m elastic.client.keyword_source | diff -u elastic/client/keywords.py - || (echo "elastic/client/keywords.py is stale: run make docs"; exit 1)

.PHONY: soak
soak: $(VENV)/.dev ## Kill workers and the master at random: all seeds, and of each kind one with cold starts
	@$(BIN)/python -m compileall -q elastic model_zoo tests/support
	@$(BIN)/pytest tests/policy/test_ledger_schedules.py tests/policy/cluster/test_properties.py \
		--hypothesis-profile soak -n 3
	@$(BIN)/pytest tests/chaos -n 3
# Python and torch, started anew for every process, are three quarters of a job: not for all 743.
	@ELASTIC_TEST_START=cold $(BIN)/pytest tests/chaos -m "not soak" -n 3
	@$(BIN)/pytest -m "soak and not cluster" --ignore tests/chaos -n 3
# They wait for pods for nine tenths of their time; what breaks the cluster has it to itself.
	@$(BIN)/pytest -m "soak and cluster and not alone" -n 4 --dist worksteal
	@$(BIN)/pytest -m "soak and cluster and alone"

.PHONY: bench
bench: $(VENV)/.dev ## Measure the ratios of benchmarks/RESULTS.md
	@$(BIN)/python -m benchmarks.run

.PHONY: figure
figure: $(VENV)/.dev ## Draw the picture of README.md from a real run with kills, docs/kills.svg
	@$(BIN)/python -m benchmarks.kills
	@$(BIN)/python -m benchmarks.figure

.PHONY: docs
docs: $(VENV)/.dev ## Write what is generated: docs/flags.md, the keywords of the API, the controller's manifests
	@$(BIN)/python -m elastic.cli.reference > docs/flags.md
	@$(BIN)/python -m elastic.client.keyword_source > elastic/client/keywords.py
	@$(BIN)/python -m elastic.controller.manifests manifests
	@$(BIN)/python -m elastic.controller.resources.definitions manifests/crds

# The oldest supported toolchain: generated code must not be newer than the runtime that loads it.
PROTO_TOOLS := grpcio-tools==1.74.0 protobuf==6.31.1 setuptools<81

$(VENV)-proto/.done:
	@$(PYTHON) -m venv $(VENV)-proto
	@$(VENV)-proto/bin/pip install --quiet --disable-pip-version-check $(patsubst %,"%",$(PROTO_TOOLS))
	@touch $@

.PHONY: proto
proto: $(VENV)-proto/.done ## Generate elastic/rpc/elastic_pb2.py and elastic/data/elastic_example_pb2.py from protos/
	@$(VENV)-proto/bin/python -m grpc_tools.protoc --proto_path=protos \
		--python_out=elastic/rpc --pyi_out=elastic/rpc protos/elastic.proto
	@$(VENV)-proto/bin/python -m grpc_tools.protoc --proto_path=protos \
		--python_out=elastic/data --pyi_out=elastic/data protos/elastic_example.proto

.PHONY: proto-check
proto-check: ## Fail if the committed stubs are not those of protos/
	@$(MAKE) --no-print-directory proto
	@git diff --exit-code -- 'elastic/*_pb2.py' 'elastic/*_pb2.pyi' \
		|| (echo "stubs are stale: commit the result of make proto"; exit 1)
