# make demo   install what is missing, build, start a bloated Python process, attach, and show where its memory went
# make test   install what is missing, build, and run all checks and all tests
# make build  build the package in .venv, again if a source changed
# make bench  compare the time of answers with the time to read the heap once
# make matrix (as root, with debootstrap) compare gdbheap with glibc's own figures on Debian's suites, and write docs/support.md;
#             then write docs/naming.md as make named does, and ask 300 exported snapshots ten questions with DuckDB and Spark;
#             last a program copies itself 10,000 times under load (gdbheap.snapshot), and a watch runs for ten minutes (tests/soak.py)
# make named  measure how much of real programs' memory has a name, and who holds it; write docs/naming.md, docs/holders.md and
#             docs/public-reports.md, which has the first pages of public reports (NAMED=--stops=3: only print)
# make site   build the documentation as a site, in build/site
# make wheel  make packages for machines without a compiler, in dist/: the source distribution, and from it a wheel for glibc 2.17
#             and later; make musl-wheel: for musl 1.2; make sdist: only the source distribution; make deb: the Debian package;
#             make image: a container image
# make release  make all of these files, with a bill of materials and checksums, from a commit without changes
# make packages-check  (as root, with debootstrap) install the packages on new Debian 11, 12 and 13 and ask there (ROOTS, FOLDER)
# make lint   run the checks without the tests
# make setup  only install what is missing; make clean: remove everything that was built

VENV ?= .venv
export VENV SUITES FOLDER ROOTS
PY := $(VENV)/bin/python
SOURCES := $(shell find gdbheap commands native -path native/target -prune -o \
    -name __pycache__ -prune -o -type f -print 2>/dev/null) \
    setup.py pyproject.toml README.md scripts/build.sh scripts/common.sh scripts/requirements.py

.PHONY: all setup build demo test lint bench named matrix site sdist wheel musl-wheel deb image release packages-check clean
all: build

setup:
	@scripts/setup.sh

build: setup $(VENV)/built
	@scripts/build.sh --fetch

$(VENV)/built: $(SOURCES) | setup
	@scripts/build.sh $(SMALL)

demo: SMALL = --small
demo: setup $(VENV)/built
	@scripts/demo.sh

test:
	@scripts/setup.sh --tests
	@scripts/test.sh

lint: build
	@scripts/lint.sh

bench: build
	@$(PY) benchmarks/bench.py $(BENCH)

named: build
	@scripts/packages.sh many
	@$(PY) tests/named.py $(or $(NAMED),--write)
	@$(PY) tests/holders.py $(if $(NAMED),,--write)
	@$(PY) tests/reports.py $(if $(NAMED),,--write)

site: build
	@scripts/site.sh

matrix: build
	@scripts/matrix.sh
	@$(MAKE) named
	@$(PY) tests/fleet.py
	@$(PY) tests/own_copy_storm.py
	@$(PY) tests/soak.py --minutes=10 --idle=2000

PACKAGED := $(SOURCES) pyproject.toml MANIFEST.in LICENSE scripts/wheels.sh scripts/deb.sh $(shell find packaging -type f)

sdist: build
	@scripts/wheels.sh sdist

wheel: build/packaging/manylinux
musl-wheel: build/packaging/musllinux
deb: build/packaging/debian

build/packaging/manylinux build/packaging/musllinux: $(PACKAGED) | build
	@scripts/wheels.sh $(notdir $@)
	@touch $@

build/packaging/debian: build/packaging/manylinux
	@scripts/deb.sh
	@touch $@

image: wheel
	@scripts/image.sh $(IMAGE)

release: build
	@scripts/release.sh

packages-check: deb
	@scripts/clean_machines.sh

clean:
	rm -rf build dist $(VENV) native/target *.egg-info .hypothesis .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
