# make demo    install and run the smallest ablation
# make test    install and run the tests
# make bench   speed, as ratios measured in one run
# make docs    the guide as a site, in site/
# make reference   write docs/reference from the code
# make audit   known flaws of the pinned versions, asked of PyPI
# make check   spelling, lint, format, types, quick tests: before a commit

PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# of pip's output one line per package that it fetches; errors and warnings are on standard error
LIST_DOWNLOADS := awk '/^ *(Downloading|Processing) / && !/metadata/ { print substr($$0, 1, 110); fflush() }'
SPEC   := pyproject.toml setup.py constraints.txt
TORCH  := $(shell sed -n 's/^torch==//p' constraints.txt)
CORES  := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

export MLFLOW_DISABLE_TELEMETRY = true
.DELETE_ON_ERROR:
.PHONY: demo test test-slow check bench types clean browser slurm images docs reference audit

# stamps live inside .venv: deleting it resets them; every pip call carries the constraints
$(VENV)/base: $(SPEC)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing hqlt_lab and the packages it needs into $(VENV): 2 to 4 minutes and 2 GB, more with a torch for CUDA"
	@echo "1 of 2: torch $(TORCH)"
	$(PIP) install -c constraints.txt torch==$(TORCH)
	@echo "2 of 2: hqlt_lab and about 100 packages, one line for each that is fetched"
	@{ $(PIP) install -c constraints.txt -e . || touch $@.failed; } | $(LIST_DOWNLOADS); \
	    if test -e $@.failed; then rm $@.failed; exit 1; fi
	@$(BIN)/python -c "import torch; v = torch.__version__; assert v.split('+')[0] == '$(TORCH)', \
	    f'torch {v} was installed, but the lab is pinned to $(TORCH): remove $(VENV) and try again'"
	@touch $@
$(VENV)/dev: $(VENV)/base
	@echo "installing what '.[dev]' in pyproject.toml lists: a minute or more"
	$(PIP) -q install -c constraints.txt -e '.[dev]'
	@touch $@
$(VENV)/gpu: $(VENV)/dev
	@echo "installing what '.[gpu]' in pyproject.toml lists: a minute or more"
	$(PIP) -q install -c constraints.txt -e '.[gpu]'
	@touch $@
$(VENV)/ray: $(VENV)/dev
	@echo "installing what '.[ray]' in pyproject.toml lists: a minute or more"
	$(PIP) -q install -c constraints.txt -e '.[ray]'
	@touch $@

demo: $(VENV)/base
	$(BIN)/hqlt run experiments/first_run.yaml

test: $(VENV)/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(CORES) -m "not slow and not gpu"

test-slow: $(VENV)/gpu $(VENV)/ray browser slurm
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(CORES) --dist loadfile -m "slow and not gpu"

# pages are looked at in Debian's browser; without one those tests are skipped and say what to install
browser:
	@for name in chromium chromium-browser google-chrome; do command -v $$name > /dev/null && exit 0; done; \
	    { test "$$(id -u)" = 0 && command -v apt-get > /dev/null && apt-get -qq update && \
	    apt-get -qq install -y --no-install-recommends chromium > /dev/null; } || \
	    echo "no browser: the tests that look at pages will be skipped"

# studies are shared out by a real SLURM of two small nodes; without one those tests are skipped and say what to install
slurm:
	@{ command -v slurmctld && command -v slurmd && command -v srun && command -v munged; } > /dev/null || \
	    { test "$$(id -u)" = 0 && command -v apt-get > /dev/null && apt-get -qq update && \
	    apt-get -qq install -y --no-install-recommends slurmctld slurmd slurm-client munge > /dev/null; } || \
	    echo "no SLURM: the tests that submit jobs will be skipped"

# the pictures of the docs, from the demo's runs
images: $(VENV)/dev browser
	$(BIN)/python -m tests.project.make_images
	$(BIN)/python docs/figures/timings.py

# the guide as a site that needs no network; `$(BIN)/mkdocs serve` shows it while one writes
docs: $(VENV)/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "the guide is there: site/index.html; with search: $(BIN)/mkdocs serve"

# the wording of every error message with a code, compared by tests/golden/test_config_messages.py
messages: $(VENV)/dev
	$(BIN)/python -m tests.golden

# the pages of every key, verb and name, from the code
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

# type checkers do not follow the package mapping of an editable install: give them one tree of links
types: $(VENV)/dev
	rm -rf .typecheck && mkdir -p .typecheck/hqlt_lab
	cd .typecheck/hqlt_lab && ln -s ../../hqlt_lab/* . && ln -s ../../components ../../registry .
	cd .typecheck && ../$(BIN)/mypy --cache-dir ../.mypy_cache --config-file ../pyproject.toml -p hqlt_lab

# known flaws of what is pinned; strict, as pip-audit takes a package that it cannot ask about for a good one
audit: $(SPEC)
	test -x .audit/bin/pip-audit || { $(PYTHON) -m venv .audit && .audit/bin/pip -q install pip-audit; }
	.audit/bin/pip-audit --strict --no-deps --disable-pip -r constraints.txt

clean:
	rm -rf $(VENV) .audit .typecheck build site *.egg-info
