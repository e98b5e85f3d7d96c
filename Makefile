# One virtual environment for everything: made with uv when it is there, with venv and pip when not.
# dev.lock pins all that the project, its tests and its build need; train.lock what PyTorch and the training
# loops of others need beside it. PyTorch itself is in neither, so that everybody can bring the build that
# fits their machine:
#   make demo TORCH='any argument of pip install'
# docs.lock pins what builds the documentation site; notebooks.lock what the notebooks draw with;
# bench.lock pins the libraries that only `make bench` needs, to measure ours against; witness.lock the
# witness and the verifiers that the tests hold our proofs against; kernels.lock what interprets a GPU's kernels.
PYTHON ?= python3
TORCH  ?= torch==2.13.0
BIN    := .venv/bin
# The packages that know no clock, database, network or file, as the import contract "pure" lists them. Of the state's tree
# the tests of its leaves open a book; the verifier's one file has no folder of tests.
UNIT   := $(addprefix tests/ledger/,accounting accounts commands crypto domain filters log mechanisms organisation_lineage wire) \
          tests/ledger/state_tree/test_sparse_tree.py \
          $(addprefix tests/policy/,attestation checks decisions depa documents planning)
# Of `make depa`: at Level 2 no model leaves.
LEVEL  ?= 1
# Seconds of processor time that all tests together may use. Alone on two cores the same tests took 2,400 to 3,750 s: machines
# differ by as much, and one machine from hour to hour. This stops what doubles them.
TEST_CPU_S ?= 6000
UNIT_CPU_S ?= 180
# Worker processes of what waits for nothing.
CHILDREN ?= $(shell nproc)
# The console is walked where a browser is there, or is asked for: EPSILON_BROWSER=required fails without one.
WALKED := $(if $(EPSILON_BROWSER)$(shell command -v chromium || command -v chromium-browser || command -v google-chrome),.venv/.browser)
# For tests that take hours: none is ended because it takes long.
ENDLESS := -o faulthandler_timeout=0

# A PYTHONPATH of somebody else's must not reach our commands, nor an activated environment.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV
# Without bytecode on disk every process that a test starts compiles the libraries anew: a third of its time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo depa test unit kernels check docs pictures openapi bench bench-training bench-gpu bench-book datasets utility mutants soak lock clean tools torch-asked

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS='	' read -r name text; do \
	  printf 'make %-10s  %s\n' "$$name" "$$text"; done

demo: .venv/.ready ## set everything up and run the main job, from policy to model
	@$(BIN)/epsilon demo

depa: .venv/.ready ## play DEPA's COVID scenario: three providers, one contract, one charge; EPSILON_DEPA=folder takes DEPA's own files
	@$(BIN)/python -m api.demo.depa demo-depa --level $(LEVEL)

test: .venv/.ready .venv/.witness .venv/.clients $(WALKED) ## set everything up and run the tests
	@$(BIN)/python -m pytest --cpu-budget $(TEST_CPU_S)

unit: .venv/.ready ## run the tests of the pure packages: no file, no network, no process
	@$(BIN)/python -m pytest -n $(CHILDREN) --cpu-budget $(UNIT_CPU_S) $(UNIT)

kernels: .venv/.ready .venv/.kernels ## run the kernels for a GPU, interpreted on the CPU, and compile them for one
	@TRITON_INTERPRET=1 PYTHONPATH=$(CURDIR)/.venv/kernels $(BIN)/python -m pytest -n 0 -m kernels tests/trainer_adapter/gpu_kernels

check: .venv/.ready ## format, lint, strict types, import contracts
	@echo "check: format"
	@$(BIN)/python -m ruff format --quiet --check --output-format concise . || \
	  { echo "check: .venv/bin/ruff format . mends it"; exit 1; }
	@echo "check: lint"
	@$(BIN)/python -m ruff check --quiet .
	@echo "check: types"
	@$(BIN)/python -m mypy --no-error-summary
	@echo "check: import contracts"
	@$(BIN)/lint-imports --no-logo > .venv/contracts.txt 2>&1 || { cat .venv/contracts.txt; exit 1; }

docs: .venv/.ready .venv/.docs ## build the documentation site into build/site: with search, and without network
	@$(BIN)/python -m tests.documentation.build_site

# DEMO=demo takes a demonstration that was run, instead of running one.
DEMO     ?=
pictures: .venv/.ready .venv/.browser ## take the pictures of the console's pages that docs/console.md shows (needs chromium)
	@$(BIN)/python -m tests.api.console.pictures $(DEMO)

openapi: .venv/.ready ## build the OpenAPI document into build/openapi, and write its digest
	@$(BIN)/python -m tests.api.wire.openapi_build

bench: .venv/.ready .venv/.peers datasets ## measure: speed (pytest-benchmark), and accuracy at a price
	@$(BIN)/python -m pytest -n 0 $(ENDLESS) -m bench --benchmark-enable tests/bench
	@$(BIN)/python -m tests.bench.accuracy --into .venv/accuracy.jsonl

# ROWS='--row cnn-64 --row lstm-32' takes some of them; a quiet machine needs about an hour for all.
ROWS     ?=
bench-training: .venv/.ready .venv/.peers ## the table of training speed beside its peers, each row added to docs/training_speed.jsonl
	@$(BIN)/python -m tests.bench.training_table --into docs/training_speed.jsonl $(ROWS)

bench-gpu: .venv/.ready ## the table of training speed on a GPU, one JSON object a row; without a GPU it says so
	@$(BIN)/python -m tests.bench.gpu_table --machine && $(MAKE) --no-print-directory .venv/.peers && \
	  $(BIN)/python -m tests.bench.gpu_table

bench-book: .venv/.ready ## the table of the book's speed, one JSON object a row; BOOK='--rounds 2 --entries 1000' makes it short
	@$(BIN)/python -m tests.bench.book_table $(BOOK)

datasets: .venv/.ready ## fetch the public data sets that accuracy is measured on
	@$(BIN)/python -m tests.bench.datasets

utility: .venv/.ready ## how many runs each admission rule lets through
	@$(BIN)/python -m tests.bench.utility

# What was decided of a function is kept in tests/mutants/decided.txt and holds while its code is the same, so it may be
# interrupted at any time; RUN=no prints what is known without a run, AGAIN=sun tries again what survived (s), what no test
# reached (u) and what had no time (n), after tests were added; what explained.toml gives a reason for is not tried.
# MUTANTS='ledger.filters.*' tries those of some modules, MUTANT_CPU_S=60 gives the tests of each more time, CHILDREN=1
# leaves the other cores alone.
RUN      ?= yes
AGAIN    ?=
mutants: .venv/.ready .venv/.mutmut ## mutation testing of the arithmetic, rules, decisions and lineage: hours; it can be interrupted and goes on
	@[ "$(RUN)" = no ] || PYTHONPATH=$(CURDIR)/.venv/mutmut \
	  $(BIN)/python -m tests.mutants.run --children $(CHILDREN) $(if $(AGAIN),--again $(AGAIN)) $(if $(MUTANTS),'$(MUTANTS)')
	@PYTHONPATH=$(CURDIR)/.venv/mutmut $(BIN)/python -m tests.mutants.report

soak: .venv/.ready .venv/.witness .venv/.clients .venv/.notebooks .venv/.browser ## the long tests, and examples that no run drew before
	@$(BIN)/python -m pytest -m "hypothesis and not bench and not kernels and not soak" --hypothesis-profile=default
	@$(BIN)/python -m pytest -n 0 $(ENDLESS) -m soak

lock: ## write the locks anew (needs uv)
	@command -v uv > /dev/null || { echo "make lock needs uv: pip install uv"; exit 1; }
	@t=$$(mktemp -d) && trap 'rm -rf "$$t"' EXIT && echo "$(TORCH)" > "$$t/torch.in" && \
	resolve() { uv pip compile --quiet --upgrade --universal --python-version 3.11 --prerelease if-necessary \
	  --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
	  --group dev "$$@" pyproject.toml > /dev/null; } && \
	echo "lock: resolving" && \
	resolve --extra train --group integrations -c "$$t/torch.in" -o "$$t/all" && \
	resolve -c "$$t/all" -o "$$t/dev" && \
	resolve --group bench -c "$$t/all" -o "$$t/peers" && \
	resolve --group mutants -c "$$t/all" -o "$$t/mutants" && \
	resolve --group docs -c "$$t/all" -o "$$t/docs" && \
	resolve --group notebooks -c "$$t/all" -o "$$t/notebooks" && \
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --prerelease if-necessary \
	  --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
	  -c "$$t/all" -o "$$t/service" pyproject.toml > /dev/null && \
	uv pip compile --quiet --upgrade --universal --python-version 3.12 --prerelease disallow --no-deps \
	  --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
	  --group witness -o "$$t/others" > /dev/null && \
	resolve --group browser -c "$$t/all" -o "$$t/walks" && \
	{ echo "# Everything but PyTorch and what only it needs. Made by 'make lock'; do not edit."; \
	  cat "$$t/dev"; } > "$$t/dev.lock" && \
	{ echo "# What PyTorch and the training loops of others need beside dev.lock; install with --no-deps. PyTorch,"; \
	  echo "# triton and the CUDA libraries are left out: see TORCH in the Makefile. Made by 'make lock'; do not edit."; \
	  awk 'NR == FNR { if (/^[a-z]/) have[$$1] = 1; next } \
	       /^[a-z]/ { keep = !($$1 in have) && $$1 !~ /^(torch|triton|cuda|nvidia)[-=]/ } \
	       keep' "$$t/dev" "$$t/all"; } > "$$t/train.lock" && \
	{ echo "# What 'make bench' measures us against; install with --no-deps into a folder of its own."; \
	  echo "# Made by 'make lock'; do not edit."; \
	  awk 'NR == FNR { if (/^[a-z]/) have[$$1] = 1; next } /^[a-z]/ { keep = !($$1 in have) } keep' \
	    "$$t/all" "$$t/peers"; } > "$$t/bench.lock" && \
	{ echo "# What 'make mutants' needs beside dev.lock; install with --no-deps into a folder of its own."; \
	  echo "# Made by 'make lock'; do not edit."; \
	  awk 'NR == FNR { if (/^[a-z]/) have[$$1] = 1; next } /^[a-z]/ { keep = !($$1 in have) } keep' \
	    "$$t/dev" "$$t/mutants"; } > "$$t/mutants.lock" && \
	{ echo "# What the service needs to run, and nothing else: a part of dev.lock. Made by 'make lock'; do not edit."; \
	  cat "$$t/service"; } > "$$t/service.lock" && \
	{ echo "# What 'make docs' needs beside dev.lock; install with --no-deps into a folder of its own."; \
	  echo "# Made by 'make lock'; do not edit."; \
	  awk 'NR == FNR { if (/^[a-z]/) have[$$1] = 1; next } /^[a-z]/ { keep = !($$1 in have) } keep' \
	    "$$t/all" "$$t/docs"; } > "$$t/docs.lock" && \
	{ echo "# What the auditor's notebook needs beside dev.lock; install with --no-deps into a folder of its own."; \
	  echo "# Made by 'make lock'; do not edit."; \
	  awk 'NR == FNR { if (/^[a-z]/) have[$$1] = 1; next } /^[a-z]/ { keep = !($$1 in have) } keep' \
	    "$$t/all" "$$t/notebooks"; } > "$$t/notebooks.lock" && \
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --prerelease disallow \
	  --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
	  --group clients -o "$$t/generator" > /dev/null && \
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --prerelease disallow \
	  --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
	  --group kernels -o "$$t/interpreter" > /dev/null && \
	{ echo "# What 'make kernels' interprets the kernels for a GPU with; install with --no-deps into a folder of its own."; \
	  echo "# Made by 'make lock'; do not edit."; cat "$$t/interpreter"; } > "$$t/kernels.lock" && \
	{ echo "# What generates a Python client, and what that client needs; install with --no-deps into a folder of its own."; \
	  echo "# Made by 'make lock'; do not edit."; cat "$$t/generator"; } > "$$t/clients.lock" && \
	{ echo "# What walks the console with a browser needs beside dev.lock; install with --no-deps into a folder of its own."; \
	  echo "# Made by 'make lock'; do not edit."; \
	  awk 'NR == FNR { if (/^[a-z]/) have[$$1] = 1; next } /^[a-z]/ { keep = !($$1 in have) } keep' \
	    "$$t/dev" "$$t/walks"; } > "$$t/browser.lock" && \
	{ echo "# The witness and the verifiers that are not ours; install with --no-deps into a folder of its own."; \
	  echo "# Made by 'make lock'; do not edit."; cat "$$t/others"; } > "$$t/witness.lock" && \
	if grep -nE '://|^-' "$$t"/*.lock; then \
	  echo "lock: the lines above name a place; nothing written"; exit 1; fi && \
	cp "$$t"/*.lock . && echo "lock: dev.lock, train.lock, bench.lock, mutants.lock, docs.lock, notebooks.lock, service.lock, clients.lock, kernels.lock, browser.lock and witness.lock written"

clean: ## remove what make and the tools have made, .venv and demo/ included
	@rm -rf .venv demo demo-[0-9]* demo-depa dist build mutants .pytest_cache .ruff_cache .mypy_cache .hypothesis .benchmarks \
	  .import_linter_cache *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Name what is missing, with the command that brings it, before anything is made.
tools:
	@command -v git > /dev/null || { echo "git is missing: apt install git"; exit 1; }
	@command -v $(PYTHON) > /dev/null || \
	  { echo "$(PYTHON) is missing: apt install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than 3.11: apt install python3 python3-venv (Debian 12 or later)," \
	         "or name a newer one: make PYTHON=python3.12"; exit 1; }
	@command -v uv > /dev/null || $(PYTHON) -c 'import venv, ensurepip' 2> /dev/null || \
	  { echo "Python's venv is missing: apt install python3-venv"; exit 1; }

# A TORCH that you name is looked at every time, the default only when the environment is made.
ifneq ($(origin TORCH),file)
.venv/.ready: torch-asked
endif

# A point every four seconds, however long an installation takes.
BEAT = { while sleep 4; do printf .; done; } & beat=$$!; trap 'kill $$beat' EXIT

# install ARGUMENTS: with uv when it is there, with pip when not.
INSTALL = $(BEAT); if command -v uv > /dev/null; then \
	  install() { uv pip install --quiet --python $(BIN)/python "$$@"; }; \
	else \
	  install() { $(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check "$$@"; }; \
	fi

.venv/.ready: dev.lock train.lock pyproject.toml Makefile | tools
	@rm -f $@
	@if $(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; \
	then :; \
	elif command -v uv > /dev/null; then \
	  echo "setup: .venv, with uv"; uv venv --quiet --clear --seed --python $(PYTHON) .venv; \
	else \
	  echo "setup: .venv, with pip"; $(PYTHON) -m venv --clear .venv; fi
	@$(INSTALL) && \
	echo "setup: packages" && \
	install --require-hashes -r dev.lock && \
	install --no-deps --require-hashes -r train.lock && \
	echo "setup: epsilon-ledger" && \
	install --no-deps --no-build-isolation -e .
	@if [ "$(origin TORCH)" = file ] && $(BIN)/python -c 'import torch' 2> /dev/null; then exit 0; fi; \
	[ -t 1 ] || { quiet=-qq; $(BEAT); }; \
	bring() { $(BIN)/python -m pip install $$quiet --disable-pip-version-check "$$@"; }; \
	echo "setup: PyTorch ($(TORCH))"; \
	case "$$(uname -sm)" in "Linux x86_64") \
	  echo "setup: unless your package index has a CPU-only build, this may be several GB" ;; esac; \
	bring --no-deps $(TORCH) || exit 1; \
	$(BIN)/python -c 'import torch' 2> /dev/null && exit 0; \
	echo "setup: this build of PyTorch wants libraries of its own (CUDA), several GB"; \
	bring $(TORCH) && $(BIN)/python -c 'import torch' || \
	  { echo "setup: PyTorch does not import; name another build of it with TORCH='...'"; exit 1; }
	@touch $@

# A folder of their own: diffprivlib brings a package called tests, which would hide ours.
.venv/.peers: bench.lock .venv/.ready
	@rm -rf $@ .venv/peers
	@$(INSTALL) && \
	echo "setup: what we are measured against" && \
	install --no-deps --require-hashes --target .venv/peers -r bench.lock
	@touch $@

.venv/.docs: docs.lock .venv/.ready
	@rm -rf $@ .venv/docs
	@$(INSTALL) && \
	echo "setup: the documentation's builder" && \
	install --no-deps --require-hashes --target .venv/docs -r docs.lock
	@touch $@

.venv/.notebooks: notebooks.lock .venv/.ready
	@rm -rf $@ .venv/notebooks
	@$(INSTALL) && \
	echo "setup: what the notebooks draw with" && \
	install --no-deps --require-hashes --target .venv/notebooks -r notebooks.lock
	@touch $@

.venv/.mutmut: mutants.lock .venv/.ready
	@rm -rf $@ .venv/mutmut
	@$(INSTALL) && \
	echo "setup: mutation testing" && \
	install --no-deps --require-hashes --target .venv/mutmut -r mutants.lock
	@touch $@

# Triton's interpreter runs on NumPy and PyTorch, which are there; it is large, so that nothing else brings it.
.venv/.kernels: kernels.lock .venv/.ready
	@rm -rf $@ .venv/kernels
	@[ "$$(uname -s)" = Linux ] || { echo "make kernels needs Linux: Triton has no build for $$(uname -s)"; exit 1; }
	@$(INSTALL) && \
	echo "setup: the interpreter of a GPU's kernels" && \
	install --no-deps --require-hashes --target .venv/kernels -r kernels.lock
	@touch $@

# The driver alone: the browser is the distribution's (apt install chromium), and none is downloaded.
.venv/.browser: browser.lock .venv/.ready
	@rm -rf $@ .venv/browser
	@$(INSTALL) && \
	echo "setup: what walks the console with a browser" && \
	install --no-deps --require-hashes --target .venv/browser -r browser.lock
	@touch $@

# With pip: the witness asks for Python 3.12 and runs with 3.11. What it needs beside itself, dev.lock brings.
.venv/.witness: witness.lock .venv/.ready
	@rm -rf $@ .venv/witness
	@echo "setup: a witness and verifiers that are not ours"
	@$(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --no-deps \
	  --ignore-requires-python --require-hashes --target .venv/witness -r witness.lock
	@touch $@

# Generators of clients: openapi-python-client, which asks for an older Typer than ours, and openapi-typescript.
.venv/.clients: clients.lock tests/generated_clients/package-lock.json .venv/.ready
	@command -v npm > /dev/null || { echo "npm is missing: apt install nodejs npm"; exit 1; }
	@command -v openssl > /dev/null || { echo "openssl is missing: apt install openssl"; exit 1; }
	@rm -rf $@ .venv/clients
	@echo "setup: generators of clients"
	@$(INSTALL) && \
	install --no-deps --require-hashes --target .venv/clients -r clients.lock
	@cp tests/generated_clients/package.json tests/generated_clients/package-lock.json .venv/clients
	@npm ci --prefix .venv/clients --ignore-scripts --no-audit --no-fund --loglevel=error > /dev/null
	@touch $@
