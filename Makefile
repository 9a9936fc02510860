# Every target makes what it needs in .venv and leaves the caller's environment out of it.
# A second run starts at once: an environment is as old as the pyproject.toml it was made from.

PYTHON := python3
PY := .venv/bin/python
# Twice quiet: errors are shown, and nothing else.
INSTALL := $(PY) -m pip install -qq --disable-pip-version-check

unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONWARNINGS PYTHONOPTIMIZE PYTHONHASHSEED
unexport PYTHONSAFEPATH PYTHONDEVMODE PYTHONINSPECT PYTHONUTF8 PYTHONDONTWRITEBYTECODE
unexport VIRTUAL_ENV CONDA_PREFIX PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV
unexport PYTEST_ADDOPTS PYTEST_PLUGINS PYTEST_DISABLE_PLUGIN_AUTOLOAD MYPYPATH
unexport COLUMNS LINES FORCE_COLOR CLICOLOR_FORCE TTY_COMPATIBLE
export PYTHONNOUSERSITE := 1
export LC_ALL := C.UTF-8
export TZ := UTC

.DEFAULT_GOAL := help
.PHONY: help demo test nightly corpus bench figures docs site kernel proofs lint format clean

help:  ## show the targets
	@sed -n 's/^\([a-z]*\):.*  ## /  make \1\t/p' Makefile | expand -t 18

demo: .venv/.runtime  ## what was proven, what was refuted, with which witness: half a screen
	@$(PY) examples/demo.py

# Of pytest, in every part: make test OPTIONS=-x
OPTIONS :=
# Parts of one test run, the long ones first; a folder is all of it that no other part names. They are
# processes and not workers of one pytest (pytest-xdist): tests that fork must be alone in their process.
PARTS := tests/accounting tests/accounting/ledger+tests/accounting/queries+tests/accounting/cli \
    tests/bandits+bandits tests/audit tests+accounting+audit \
    tests/accounting/certificates+tests/accounting/privacy_curves tests/dpcore+dpcore \
    tests/audit/statistical_tests+tests/audit/report+tests/audit/testing tests/audit/broken_mechanisms+tests/audit/cli+tests/audit/targets
FOLDERS := $(subst +, ,$(PARTS))
TESTS := $(addprefix part-,$(PARTS))
# Each gets an equal share of the alpha budget. Four at a time: on two cores, neither is idle while
# a test waits. What a part prints is shown whole when it has ended; every failure is named.
IN_PARTS := +@$(MAKE) --no-print-directory --keep-going --jobs=4 \
    $(if $(filter output-sync,$(.FEATURES)),--output-sync)
inside = $(subst +, ,$(1)) $(addprefix --ignore=,$(filter-out $(subst +, ,$(1)), \
    $(filter $(addsuffix /%,$(subst +, ,$(1))),$(FOLDERS))))

.PHONY: lint $(TESTS)
# Threads of BLAS only wait for one another if four processes share two cores.
$(TESTS): export OPENBLAS_NUM_THREADS := 1
$(TESTS): part-%:
	@ALPHA_SHARE=1/$(words $(PARTS)) $(PY) -m pytest $(OPTIONS) $(call inside,$*) || test $$? = 5  # none chosen

test: .venv/.dev  ## what CI runs: linters, types, layers, doctests, tests; four processes at a time
	$(IN_PARTS) lint $(TESTS)

nightly: .venv/.docs  ## the same, the slow tests, a browser and the false-alarm sweeps; needs a package registry
	@tests/install_browser
	$(IN_PARTS) lint $(TESTS) OPTIONS='-m ""'
	@$(PY) -m benchmarks.auditing --jobs 2 --rows boundary default-level twins anytime controls
	@$(MAKE) -s site

corpus: .venv/.runtime  ## real failures of published packages, installed and audited: gigabytes
	@$(PY) -m dpcore audit corpus run --all --jobs 2

bench: .venv/.dev  ## speed and tightness beside the peers, as JSON; an hour
	@set -e; for file in benchmarks/[a-z]*.py; do \
	    name=$${file##*/}; $(PY) -m benchmarks.$${name%.py}; done
	@$(PY) -m benchmarks.auditing && $(PY) -m benchmarks.auditing.fit
	@$(PY) -m benchmarks.auditing.peers_on_corpus && $(PY) -m benchmarks.auditing.dp_sniper

figures: .venv/.dev  ## every plot and table of docs/figures, from seeds; a quarter of an hour on two idle cores
	@$(PY) -m benchmarks.figures --output docs/figures
	@$(PY) -m benchmarks.figures.dpsgd --output docs/figures

docs: .venv/.docs  ## links, examples, tutorials and proof hashes of the pages; no network
	@$(PY) -m pytest -m "" tests/repository/test_docs.py tests/repository/test_links.py \
	    tests/repository/test_proofs.py tests/repository/test_site.py

site: .venv/.docs  ## the pages, the API and the commands as a site in build/site; no network
	@$(PY) -m sphinx -q -W -j auto -c docs . build/site

kernel: .venv/.runtime  ## kernel.py, one file that proves certificates and needs no package
	@$(PY) -m accounting.certificates.single_file > kernel.py

# In the order of their imports; each file prints the assumptions of its last theorem.
PROOFS := Pairs Partitions Exponential Kernel DiscreteLaplace Run

proofs:  ## compile the Coq proofs of the kernel's steps; needs coqc 8.16 and half a minute
	@command -v coqc > /dev/null || { echo 'coqc is missing: install Coq 8.16 (Debian, Ubuntu: apt install coq)'; exit 1; }
	@mkdir -p build/proofs && cp proofs/*.v build/proofs
	@cd build/proofs && set -e; for name in $(PROOFS); do echo $$name.v; coqc -q -Q . dpcore $$name.v; done

lint: .venv/.dev  ## linters, types and layers only: seconds
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy --strict
	@.venv/bin/lint-imports --no-cache --no-logo

format: .venv/.dev  ## rewrite the layout of the code
	@$(PY) -m ruff format .

clean:  ## forget the environment and every cache
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Nothing is byte-compiled before it is used: most modules of most packages never are.
# One installation: an environment for more serves the targets that need less.
.venv/.runtime: EXTRAS :=
.venv/.dev: EXTRAS := [dev]
.venv/.docs: EXTRAS := [dev,docs]
.venv/.dev: LESS := .venv/.runtime
.venv/.docs: LESS := .venv/.runtime .venv/.dev
.venv/.runtime .venv/.dev .venv/.docs: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed")'
	@$(PYTHON) -m venv .venv
	@$(INSTALL) --no-compile -e '.$(EXTRAS)'
	@touch $(LESS) $@
