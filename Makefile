# make table1   everything: install once, train, evaluate, print Table 1 of the nano tier
# make test     the fast tests          make lint    ruff, mypy, snakefmt
# make slow     the slow tests, one at a time
# make stored   tables and figures of the stored runs
# make docs     these pages as a site, in build/site
# make setup    only the install        make clean   what the tools left (never results/)
# make lock     requirements.lock again  make dist    the wheel, and the archive of stored runs
# make trinity  the environment of the trinity engine, separate from .venv (docs/tiers.md)
# make verl     the same, and two steps of R3L on real Ray, Trinity and verl, compared with the local engine's
# make verifiers, make openenv   .venv and that library in an environment of their own, and the adapters' tests (docs/extending.md)
# make vllm     an environment with vLLM for CPUs: `r3l train --set compute=vllm` (docs/architecture.md), and a server
#               that `r3l evaluate --server` can ask (docs/endpoints.md)
#
# PYTHON=/path/to/python3.12 chooses the interpreter; PIP_ARGS=... is passed to pip, UV_ARGS=... to uv (docs/getting_started.md).

SHELL := bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.r3l-installed
TRINITY := .venv-trinity
TRINITY_KIND := $(if $(shell command -v nvidia-smi),gpu,cpu)
TRINITY_LOCK := --overrides overrides.txt --python-version 3.11 --no-annotate --custom-compile-command "make lock"
TRINITY_STAMP := $(TRINITY)/.r3l-installed
VLLM := .venv-vllm
VLLM_STAMP := $(VLLM)/.r3l-installed
PIP_ARGS ?=
CORES ?= all
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

# torch is not in the lock, for its build is the machine's (CPU, which CUDA); the stored results come from this version.
TORCH ?= torch==2.13.0
# uv installs the lock, in less than half of pip's time. Bytecode is made by the first import of a package: all of it would
# take 105 CPU-seconds. pip installs torch, for it knows where a machine keeps its own build.
UV ?= uv==0.13.9

# Where this clone comes from, as an address of the web; nothing for a folder.
ORIGIN := $(shell git config --get remote.origin.url | sed -E 's|^git@([^:]+):|https://\1/|; s|\.git$$||' | grep ^https:)

# The first interpreter that really runs and is 3.11 or 3.12; newest first. A name on PATH may be a dead shim.
SUITABLE := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))
PYTHON ?= $(shell for p in python3.12 python3.11 python3 $(HOME)/.pyenv/versions/3.1[12].*/bin/python; do \
    "$$p" -c '$(SUITABLE)' 2>/dev/null && echo "$$p" && break; done)

# HERE is this folder as one word of a shell, whatever its name holds.
HERE := '$(subst ','\'',$(CURDIR))'

# A copied or moved clone has an environment whose programs are those of the first one: it is made again. A venv names
# its own folder in pyvenv.cfg.
moved = $(if $(wildcard $(1)/pyvenv.cfg),$(shell grep -qF ' '$(HERE)/$(1) $(1)/pyvenv.cfg || echo FORCE))
drop_moved = @$(if $(call moved,$(1)),echo "$(1) belongs to another folder; it is made again" && rm -rf $(1),:)
FORCE:

.PHONY: FORCE setup lock dist trinity verl flash vllm verifiers openenv table1 test slow lint docs stored clean

setup: $(STAMP)
	@$(if $(filter setup,$(MAKECMDGOALS)),printf '\nNext:\n    source $(VENV)/bin/activate\n    r3l demo\n',:)

$(STAMP): pyproject.toml requirements.lock $(call moved,$(VENV))
	$(call drop_moved,$(VENV))
	@if [ ! -x $(BIN)/python ]; then \
	    if [ -z "$(PYTHON)" ]; then \
	        echo "error: no Python 3.11 or 3.12 found; install one (e.g. apt-get install python3.12 python3.12-venv," \
	            "or uv python install 3.12) and run make setup PYTHON=/path/to/python3.12" >&2; exit 2; fi; \
	    for tool in c++ cmake make; do command -v $$tool >/dev/null || { \
	        echo "error: $$tool is missing; fast-downward-textworld is built from source:" \
	            "apt-get install g++ cmake make" >&2; exit 2; }; done; \
	    "$(PYTHON)" -m venv $(VENV) || { \
	        echo "error: $(PYTHON) cannot make a virtual environment; install its venv package" \
	            "(e.g. apt-get install python3.12-venv)" >&2; rm -rf $(VENV); exit 2; }; \
	fi
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) $(UV)
	CMAKE_TOOLCHAIN_FILE=$(HERE)/configs/fast_downward.cmake $(BIN)/uv pip install --python $(BIN)/python --no-deps --require-hashes $(UV_ARGS) -r requirements.lock
	$(BIN)/python -m pip install --no-compile $(PIP_ARGS) $(TORCH)
	$(BIN)/python -m pip install $(PIP_ARGS) --no-deps --no-build-isolation -e .
	$(BIN)/python -c 'from r3l.local.kernels.compilation import load; load()'
	@touch $@

# Every package that '.[dev]' asks for, by version and hash; what is locked already stays, unless LOCK_ARGS=--upgrade.
lock: setup
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --overrides <(echo "torch; sys_platform == 'never'") --no-emit-package torch \
	    --custom-compile-command "make lock" --output-file requirements.lock $(LOCK_ARGS)
	cd configs/trinity && $(HERE)/$(BIN)/uv pip compile $(TRINITY_LOCK) gpu.in --output-file gpu.txt $(LOCK_ARGS)
	cd configs/trinity && $(HERE)/$(BIN)/uv pip compile $(TRINITY_LOCK) cpu.in --overrides overrides-cpu.txt \
	    --output-file cpu.txt $(LOCK_ARGS)

# The archive of stored runs, and the wheel, which knows its digest and where it will be published: RELEASE=https://...,
# by default among the releases of the origin (docs/getting_started.md).
dist: setup
	rm -rf build/lib build/bdist.* build/release.json dist && mkdir -p build dist
	version=$$($(BIN)/python -c 'import r3l; print(r3l.__version__)'); name=r3l-stored-$$version; \
	    git archive --format=zip --prefix=$$name/ --output=dist/$$name.zip HEAD:results/stored -- . ':(exclude)models' && \
	    release="$(or $(RELEASE),$(if $(ORIGIN),$(ORIGIN)/releases/download/v$$version))" && \
	    if [ -n "$$release" ]; then printf '{"address": "%s/%s.zip", "sha256": "%s"}\n' "$$release" $$name \
	        $$(sha256sum < dist/$$name.zip | cut -d' ' -f1) > build/release.json; fi
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	rm -f build/release.json
	ls -l dist

trinity: $(TRINITY_STAMP)

# Packages of a GPU machine or of any other one, by uv: pip takes half an hour to resolve them and cannot override. r3l
# without its own pins: numpy 2.4 and verl cannot stand together. With bytecode, for Ray ends if one of its processes takes
# 15 seconds to start, as their imports would on a busy machine.
$(TRINITY_STAMP): configs/trinity/$(TRINITY_KIND).txt $(call moved,$(TRINITY)) | $(STAMP)
	$(call drop_moved,$(TRINITY))
	@[ -x $(TRINITY)/bin/python ] || $(BIN)/python -m venv $(TRINITY)
	$(BIN)/uv pip sync --compile-bytecode --python $(TRINITY)/bin/python $(UV_ARGS) configs/trinity/$(TRINITY_KIND).txt
	$(BIN)/uv pip install --python $(TRINITY)/bin/python $(UV_ARGS) --no-deps -e .
	@touch $@

# The smallest run on verl; `pytest -m slow tests/trinity` has the others.
verl: trinity
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow -n 0 'tests/trinity/test_verl_on_cpus.py::test_two_steps_equal_the_local_ones[r3l]'

# Compiled for this machine's CUDA, which takes long; verl trains without it, but not with sequence_parallel > 1.
flash: trinity
	$(BIN)/uv pip install --python $(TRINITY)/bin/python $(UV_ARGS) setuptools wheel ninja
	$(BIN)/uv pip install --python $(TRINITY)/bin/python $(UV_ARGS) --no-build-isolation 'flash-attn>=2.8.3'

vllm: $(VLLM_STAMP)

# The wheel pulls CUDA builds of three packages with which its imports fail; a language model needs none of them. r3l
# without its own pins, as for Trinity.
$(VLLM_STAMP): configs/vllm/requirements.txt configs/environments.txt $(call moved,$(VLLM)) | $(STAMP)
	$(call drop_moved,$(VLLM))
	@[ -x $(VLLM)/bin/python ] || $(BIN)/python -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install $(PIP_ARGS) -r configs/vllm/requirements.txt
	$(VLLM)/bin/python -m pip uninstall --yes torchvision torchaudio torchcodec
	$(VLLM)/bin/python -m pip install $(PIP_ARGS) --no-deps -e .
	@touch $@

verifiers: .venv-verifiers/.r3l-installed

openenv: .venv-openenv/.r3l-installed

verifiers openenv:
	OMP_NUM_THREADS=1 .venv-$@/bin/python -m pytest tests/envs/adapters

# In addition to the packages of .venv, which it sees: none of them in another version, also where verifiers asks for an older
# openai. OpenEnv's servers are made with its own library, which asks for another mcp than verifiers.
SERVER_openenv := openenv==0.10.0
SITE := import sysconfig; print(sysconfig.get_paths()['purelib'])
.venv-%/.r3l-installed: pyproject.toml | $(STAMP)
	$(call drop_moved,$(@D))
	@[ -x $(@D)/bin/python ] || $(BIN)/python -m venv $(@D)
	$(BIN)/python -c "$(SITE)" > "$$($(@D)/bin/python -c "$(SITE)")/r3l.pth"
	$(BIN)/python -m pip freeze --exclude-editable | sed "s/^torch==.*/torch; sys_platform == 'never'/" > $(@D)/installed.txt
	$(BIN)/uv pip compile --quiet $(UV_ARGS) --python $(@D)/bin/python --overrides $(@D)/installed.txt --no-annotate --extra $* \
	    --output-file $(@D)/requirements.txt pyproject.toml <(echo $(SERVER_$*))
	$(@D)/bin/python -m pip install $(PIP_ARGS) --no-deps -r $(@D)/requirements.txt -e .
	@touch $@

table1: setup
	@$(BIN)/r3l run --cores $(CORES)

# A process more than cores, for tests wait for other processes; each computes with one thread. Bytecode is kept, whatever the shell says:
# a test that starts the program would compile it again.
test: setup
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

slow: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

# mypy has to see r3l.envs and r3l.baselines where a wheel holds them.
TYPES := build/types
lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf $(TYPES) && mkdir -p $(TYPES)/r3l && ln -s $(HERE)/r3l/* $(HERE)/envs $(HERE)/baselines $(TYPES)/r3l
	cd $(TYPES) && $(HERE)/$(BIN)/mypy --config-file $(HERE)/pyproject.toml --cache-dir $(HERE)/.mypy_cache r3l
	$(BIN)/snakefmt --check Snakefile workflow

# Every link and anchor is checked. The variable silences an advertisement of the theme's.
docs: setup
	NO_MKDOCS_2_WARNING=1 R3L_REPOSITORY=$(ORIGIN) $(BIN)/mkdocs build --strict

# Tables and figures of the stored runs, offline: what results/stored/*_nano.* are, and the tables of two pages.
STORED := results/stored
stored: setup
	$(BIN)/r3l verify
	$(BIN)/r3l verify $(addprefix $(STORED)/,hint_gap curves map gate hints taught_hints taught_reflections twenty_updates)
	for t in table1 mathematics table_rltf learning retry_improvement cost pivot; do \
	    $(BIN)/r3l table $$t --results $(STORED) --seeds-planned 5 --out $(STORED)/$${t}_nano.csv > /dev/null || exit; done
	for t in table2 baselines; do \
	    $(BIN)/r3l table $$t --results $(STORED) --seeds-planned 5 --env alfworld,math,scienceworld,webshop \
	        --out $(STORED)/$${t}_nano.csv > /dev/null || exit; done
	for t in alpha group_size retries sync_interval; do \
	    $(BIN)/r3l table $$t --results $(STORED) --seeds-planned 3 --env math,webshop \
	        --out $(STORED)/$${t}_nano.csv > /dev/null || exit; done
	$(BIN)/r3l table table1 --results $(STORED)/hint_gap --seeds-planned 5 --env alfworld \
	    --out $(STORED)/hint_gap/table1_nano.csv > /dev/null
	$(BIN)/r3l table claims --out $(STORED)/claims_nano.csv > /dev/null
	$(BIN)/r3l figure claims --out $(STORED)/claims_nano.png
	$(BIN)/r3l figure held_out --out $(STORED)/held_out_nano.png
	$(BIN)/r3l table map --results $(STORED) --out $(STORED)/map.csv > /dev/null
	$(BIN)/r3l figure map --out $(STORED)/map.png
	$(BIN)/r3l figure probe $(STORED)/probe/*.json $(STORED)/gate/probe/*.json --out $(STORED)/probes.png
	$(BIN)/r3l table budget --results $(STORED) --out $(STORED)/budget_nano.csv > /dev/null
	$(BIN)/r3l table feedback_per_token --results $(STORED) --out $(STORED)/feedback_per_token_nano.csv > /dev/null
	$(BIN)/r3l figure feedback_per_token --results $(STORED) --out $(STORED)/feedback_per_token_nano.png
	for f in exploration pivot cost profile stops table1 mathematics; do \
	    $(BIN)/r3l figure $$f --results $(STORED) --out $(STORED)/$${f}_nano.png || exit; done
	$(BIN)/r3l figure ablations --results $(STORED) --env alfworld,math,scienceworld,webshop \
	    --out $(STORED)/ablations_nano.png
	$(BIN)/r3l figure sync_interval --results $(STORED) --env math,webshop --out $(STORED)/sync_interval_nano.png
	for f in learning_curves dynamics; do \
	    $(BIN)/r3l figure $$f --results $(STORED) --method grpo,r3l --out $(STORED)/$${f}_nano.png || exit; done
	$(BIN)/r3l figure learning_curves --results $(STORED) --env gsm8k_lines --method grpo,r3l,r3l_no_reflection \
	    --out $(STORED)/smol/learning_curves.png
	$(BIN)/python docs/site/stored_tables.py

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +
