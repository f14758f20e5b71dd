# A short way to the CMake presets (CMakePresets.json), which do the work. `make help` lists it.
PREFIX  ?= /usr/local
DESTDIR ?=
SECONDS ?= 30
JOBS    ?= $(shell nproc)
TESTS   ?= .
BENCHES ?= run ddp allreduce cluster async hogwild staleness simulator faults pipelines
CTEST   := ctest --output-on-failure --parallel $(JOBS) --tests-regex '$(TESTS)'

.DEFAULT_GOAL := build
.PHONY: build packages demo check bench lint format asan tsan clang fuzz mutants install clean help

# Each sanitizer or compiler has a folder of its own, so that switching rebuilds nothing.
configure = @cmake --preset $(1) $(2) >/dev/null
compile   = @cmake --build --preset $(1) --parallel $(JOBS)

# Where modules lie below the prefix differs between prefixes (lib or lib/x86_64-linux-gnu), and the
# program is compiled to look there: the prefix must be known before.
build: ## build the program and the libraries into build/release, for PREFIX
	$(call configure,release,-DCMAKE_INSTALL_PREFIX="$(PREFIX)")
	$(call compile,release) --target product

packages: ## install the Debian packages that the build needs and are missing
	@tools/install-packages build

demo: packages ## train LeNet on MNIST to 99 %
	@$(MAKE) --no-print-directory build
	@tools/demo build/release/shoal

check: packages ## all tests; parsers are fuzzed under the address sanitizer
	$(call configure,asan)
	$(call compile,asan) --target fuzzers planted_fault
	@$(CTEST) --preset asan-fuzz
	$(call configure,release)
	$(call compile,release)
	@$(CTEST) --preset release

bench: ## Shoal beside PyTorch, alone and with workers, and its all-reduce beside MPI and Gloo
	@tools/install-packages build bench
	@$(MAKE) --no-print-directory build
	@failed=; for name in $(BENCHES); do \
	    bench/$$name build/release/shoal || failed="$$failed $$name"; echo; \
	done; [ -z "$$failed" ] || { echo "bench: failed:$$failed" >&2; exit 1; }

lint: ## clang-format, include order, shellcheck, clang's warnings, cppcheck, clang-tidy
	@tools/install-packages build develop
	$(call configure,clang)
	@tools/lint build/clang

format: ## let clang-format rewrite the sources
	@git ls-files '*.c' '*.h' | xargs clang-format -i

asan: packages ## the unit tests under the address and undefined-behaviour sanitizers
	$(call configure,asan)
	$(call compile,asan) --target unit_tests
	@$(CTEST) --preset asan

tsan: packages ## the unit tests under the thread sanitizer
	$(call configure,tsan)
	$(call compile,tsan) --target unit_tests
	@$(CTEST) --preset tsan

clang: ## the unit tests, compiled by clang
	@tools/install-packages build develop
	$(call configure,clang)
	$(call compile,clang)
	@$(CTEST) --preset clang

fuzz: ## libFuzzer on every parser, SECONDS=30 each
	@tools/install-packages build develop
	$(call configure,fuzz)
	$(call compile,fuzz) --target fuzzers
	@tools/fuzz build/fuzz $(SECONDS)

mutants: packages ## break the code in small ways; reports where no test notices (slow)
	@tools/mutate $(MUTANTS)

install: build ## install below PREFIX=/usr/local; DESTDIR= for packaging
	@DESTDIR="$(DESTDIR)" cmake --install build/release

clean: ## remove build/
	rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile
	@echo "  TESTS='^data' narrows check, asan, tsan and clang to tests with such names"
