# The front door.  `make` leaves the release program at build/invar.
.DEFAULT_GOAL := build/invar
.PHONY: build/invar setup demo test bench fuzz format clean

setup:
	@tools/setup

build/invar: setup
	@cmake --preset release --log-level=WARNING
	@cmake --build build --target invar

clean:
	rm -rf build build-dev build-thread build-fuzz
