# make run    build everything in a venv of its own and test the reference engine
# make test   the tests, as continuous integration runs them (tox -e cpu)

PYTHON ?= python3
CXX    ?= c++
TORCH  ?= torch==2.13.0
VENV   ?= .venv

BIN  := $(VENV)/bin
PIP  := $(BIN)/python -m pip install --quiet --disable-pip-version-check
TOX  := $(VENV)/.tox-installed
BUILT := $(VENV)/.built

.PHONY: run test toolchain clean

# Two processes of one thread each: threads of tiny models wait for each other, for minutes where a machine is busy.
run: $(BUILT)
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/verispec run --engine reference -n 2

test: $(TOX)
	$(BIN)/tox -e cpu

# Each stamp is written last, so that a build that was cut off is done again and never half used.
$(TOX): | toolchain
	@rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(PIP) "tox>=4.30"
	@touch $@

$(BUILT): $(TOX) pyproject.toml CMakeLists.txt $(shell find src reference suites fixtures -type f -not -name '*.pyc' -not -name '*.so' 2>/dev/null)
	$(PIP) "$(TORCH)"
	$(PIP) ".[judge,generate]"
	@touch $@

toolchain:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "verispec needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1 || true). Name another: make PYTHON=/path/to/python3.11"; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) has no venv module; install it (Debian: python3-venv)"; exit 2; }
	@echo 'int main() { if constexpr (true) return 0; }' | $(CXX) -x c++ -std=c++17 -fsyntax-only - 2>/dev/null || \
	  { echo "verispec needs a C++17 compiler; '$(CXX)' is none. Install one (Debian: g++) or name it: make CXX=g++-12"; exit 2; }

clean:
	rm -rf $(VENV) .tox build dist
