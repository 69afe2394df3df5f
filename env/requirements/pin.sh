#!/bin/sh
# Writes the lists that the set-up installs: for Python 3.10 and newer on every system, each package with its sums. An older pip
# takes the newest of a package that another one wants with an extra, unless the list names the extra, too.
set -eu
cd "$(dirname "$0")"
pin() {
    uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links --no-strip-extras "$@"
}
pin learner.in -o learner.txt
# What two lists name has one version.
pin onnx.in -c learner.txt -o onnx.txt
pin tests.in -c learner.txt -c onnx.txt -o tests.txt
pin teach.in -c learner.txt -o teach.txt
pin grading.in -c learner.txt -o grading.txt
