#!/bin/sh
# Unpacks the offline bundle beside it, and makes it ready to run. The work is done by unpack.pyz, in Python.
#   sh unpack.sh [--to FOLDER] [--python PYTHON] [-- COMMAND …]
here=$(dirname "$0")
for python in "${GPULAB_PYTHON:-python3}" python3 python3.13 python3.12 python3.11 python3.10; do
    if "$python" -c 'import sys, lzma; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
        if ! "$python" -c 'import sys, zipfile; sys.exit(zipfile.ZipFile(sys.argv[1]).testzip() is not None)' \
            "$here/unpack.pyz" 2>/dev/null; then
            echo "unpack: $here/unpack.pyz is missing or damaged
next: copy it once more from the machine where the bundle was made (dist/), and run again" >&2
            exit 1
        fi
        exec "$python" "$here/unpack.pyz" "$@"
    fi
done
echo 'unpack: no Python 3.10 or newer (with its module lzma) is on the PATH
next: put one there, or name one: GPULAB_PYTHON=/path/to/python3.12 sh unpack.sh' >&2
exit 1
