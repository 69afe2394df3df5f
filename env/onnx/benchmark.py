"""`make trt-benchmark`: an ONNX file on every provider that this machine has, as a table and two plots; those that are missing
are named with the command that adds them. What stands in ARGS goes to the program.
"""

from __future__ import annotations

import os
import shlex
import sys
import time

from env import in_venv, train


def main() -> int:
    """Brings ONNX Runtime, builds, times, draws."""
    from env.console import SetupError, problem
    from env.setup import onnxruntime

    arguments = [*sys.argv[1:], *shlex.split(os.environ.get("ARGS", ""))]
    started = time.time()
    try:
        onnxruntime.onnxruntime([onnxruntime.LINE], onnxruntime.wish())
    except SetupError as error:
        # The program says what it does without.
        problem(error)
    try:
        train.build("onnx")
        status = train.call(["trt-benchmark", *arguments])
    except SetupError as error:
        problem(error)
        return 1
    if status == 0:
        train.draw(started, train.folder(arguments), "trt-*.svg")
    return status


if __name__ == "__main__":
    in_venv.enter("onnx")
    sys.exit(main())
