# make demo        install hqlt_lab and run the smallest ablation
# make test        install hqlt_lab and run the fast tests
# make test-slow   run the slow tests
# make check       check types, lint, format and spelling, and run the fast tests; run it before a commit
# make types       check types with mypy
# make docs        build the guide as a site in site/
# make reference   write docs/reference from the code
# make messages    write the golden files of all messages from the code
# make images      draw the pictures of the documentation
# make bench       run the benchmarks
# make audit       check the pinned packages for known vulnerabilities
# make clean       remove the environment and everything that was built

PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# keep one line of pip's output per downloaded package; errors and warnings are on standard error
LIST_DOWNLOADS := awk '/^ *(Downloading|Processing) / && !/metadata/ { print substr($$0, 1, 110); fflush() }'
SPEC   := pyproject.toml setup.py constraints.txt
TORCH  := $(shell sed -n 's/^torch==//p' constraints.txt)
CORES  := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

export MLFLOW_DISABLE_TELEMETRY = true
.DELETE_ON_ERROR:
.PHONY: demo test test-slow check bench types clean browser slurm images docs messages reference audit

# the stamp files are inside .venv, so removing it resets them; every pip call uses the constraints
$(VENV)/base: $(SPEC)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing hqlt_lab into $(VENV). This takes 2 to 4 minutes and 2 GB, more with a CUDA build of torch."
	@echo "1 of 2: torch $(TORCH)"
	$(PIP) install -c constraints.txt torch==$(TORCH)
	@echo "2 of 2: hqlt_lab and about 100 packages, with one line per downloaded package"
	@{ $(PIP) install -c constraints.txt -e . || touch $@.failed; } | $(LIST_DOWNLOADS); \
	    if test -e $@.failed; then rm $@.failed; exit 1; fi
	@$(BIN)/python -c "import torch; v = torch.__version__; assert v.split('+')[0] == '$(TORCH)', \
	    f'torch {v} was installed, but hqlt_lab needs $(TORCH). Remove $(VENV) and try again.'"
	@touch $@
$(VENV)/dev: $(VENV)/base
	@echo "Installing '.[dev]' of pyproject.toml. This takes a minute or more."
	$(PIP) -q install -c constraints.txt -e '.[dev]'
	@touch $@
$(VENV)/gpu: $(VENV)/dev
	@echo "Installing '.[gpu]' of pyproject.toml. This takes a minute or more."
	$(PIP) -q install -c constraints.txt -e '.[gpu]'
	@touch $@
$(VENV)/ray: $(VENV)/dev
	@echo "Installing '.[ray]' of pyproject.toml. This takes a minute or more."
	$(PIP) -q install -c constraints.txt -e '.[ray]'
	@touch $@

demo: $(VENV)/base
	$(BIN)/hqlt run experiments/first_run.yaml

test: $(VENV)/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(CORES) -m "not slow and not gpu"

test-slow: $(VENV)/gpu $(VENV)/ray browser slurm
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(CORES) --dist loadfile -m "slow and not gpu"

# tests of HTML pages use Debian's browser; without a browser they are skipped with a hint what to install
browser:
	@for name in chromium chromium-browser google-chrome; do command -v $$name > /dev/null && exit 0; done; \
	    { test "$$(id -u)" = 0 && command -v apt-get > /dev/null && apt-get -qq update && \
	    apt-get -qq install -y --no-install-recommends chromium > /dev/null; } || \
	    echo "No browser was found: the tests of HTML pages will be skipped."

# tests of the SLURM launcher start SLURM with two small nodes; without SLURM they are skipped with a hint what to install
slurm:
	@{ command -v slurmctld && command -v slurmd && command -v srun && command -v munged; } > /dev/null || \
	    { test "$$(id -u)" = 0 && command -v apt-get > /dev/null && apt-get -qq update && \
	    apt-get -qq install -y --no-install-recommends slurmctld slurmd slurm-client munge > /dev/null; } || \
	    echo "SLURM was not found: the tests that submit jobs will be skipped."

# draw the pictures of the documentation from the runs of the demo
images: $(VENV)/dev browser
	$(BIN)/python -m tests.project.make_images
	$(BIN)/python docs/figures/timings.py

# the site needs no network; `$(BIN)/mkdocs serve` shows changes while you write
docs: $(VENV)/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The guide is in site/index.html. To search it, run: $(BIN)/mkdocs serve"

# the tests in tests/golden compare these files with the code
messages: $(VENV)/dev
	$(BIN)/python -m tests.golden

# pages of every setting, component, command and Python name
reference: $(VENV)/dev
	$(BIN)/python -m hqlt_lab.reference_pages docs/reference

bench: $(VENV)/gpu
	$(BIN)/python benchmarks/cpu_speed.py
	$(BIN)/python benchmarks/rule_speed.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/train_overhead.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/probe_cost.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/tracking_cost.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/study_overhead.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/many_cells.py 1
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/data_speed.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/decode_growth.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/decode_speed.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/environment_speed.py

check: $(VENV)/dev types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/typos
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(CORES) -m "not slow and not gpu" -x

# type checkers do not follow the package mapping of an editable install, so mypy gets one tree of links
types: $(VENV)/dev
	rm -rf .typecheck && mkdir -p .typecheck/hqlt_lab
	cd .typecheck/hqlt_lab && ln -s ../../hqlt_lab/* . && ln -s ../../components ../../registry .
	cd .typecheck && ../$(BIN)/mypy --cache-dir ../.mypy_cache --config-file ../pyproject.toml -p hqlt_lab

# --strict: otherwise pip-audit passes a package whose advisories it cannot fetch
audit: $(SPEC)
	test -x .audit/bin/pip-audit || { $(PYTHON) -m venv .audit && .audit/bin/pip -q install pip-audit; }
	.audit/bin/pip-audit --strict --no-deps --disable-pip -r constraints.txt

clean:
	rm -rf $(VENV) .audit .typecheck build site *.egg-info
