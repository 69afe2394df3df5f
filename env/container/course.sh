#!/bin/sh
# An image's layer with the builds that notebooks start on: course.sh LESSONS, as in `make setup LESSONS=…`.
set -eu
python3 -m env.setup --lessons "$1"

# The program `gpulab` stays; what it was built from does not.
find "$GPULAB_HOME/target/release" -mindepth 1 -maxdepth 1 ! -name gpulab -exec rm -rf {} +
# What came packed lies there unpacked, too.
rm -rf "$CARGO_HOME/registry/cache"
"$(dirname "$0")/share.sh" "$CARGO_HOME" "$GPULAB_HOME/.gpulab" "$GPULAB_HOME/target"
