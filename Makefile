# The front door; `make help` lists it.  `make` leaves the release program at build/invar.
.DEFAULT_GOAL := build/invar
.PHONY: build/invar all demo test bench fuzz format clean help
SECONDS_EACH ?= 60
CXX_SOURCES = $(shell git ls-files '*.cpp' '*.h' '*.inl')
# ccache does not keep what was compiled with a precompiled header.
LAUNCHER = $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON)
CONFIGURE = cmake --log-level=WARNING $(LAUNCHER) --preset

build/invar:  ## the release program (what plain `make` does)
	@tools/setup build
	@[ -e build/build.ninja ] || $(CONFIGURE) release -DINVAR_TESTS=OFF
	@cmake --build build --target invar

all:
	@tools/setup test
	@$(CONFIGURE) release -DINVAR_TESTS=ON
	@cmake --build build

demo: build/invar  ## real weights answer a question, with what it cost
	@tools/setup demo
	@tools/demo

test: all  ## every test: unit, style, golden, against llama.cpp and the Python originals
	@tests/run

bench: build/invar  ## speed on this machine, beside its read bandwidth
	@[ -e build/bench.gguf ] || build/invar synth qwen35:0.8B --mix Q4_K_M -o build/bench.gguf
	@build/invar bench build/bench.gguf -p 512 -n 64

fuzz:  ## each fuzz target for SECONDS_EACH seconds (60)
	@tools/setup fuzz
	@[ -e build-fuzz/build.ninja ] || $(CONFIGURE) fuzz
	@cmake --build build-fuzz --target fuzz/all
	@tools/fuzz $(SECONDS_EACH)

format:  ## clang-format over all sources
	@tools/setup format
	@clang-format-14 -i $(CXX_SOURCES)

clean:  ## remove what was built
	rm -rf build build-dev build-thread build-fuzz

help:  ## this list
	@sed -n 's/^\([a-z/]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | sed 's|build/invar||' | expand -t 18
