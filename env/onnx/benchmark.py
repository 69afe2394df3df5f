"""`make trt-benchmark`: an ONNX file on every provider that this machine has, as a table and two plots; those that are missing
are named with the command that adds them. What stands in ARGS goes to the program.
"""

from __future__ import annotations

from env import in_venv, program, train
from env.console import ToolError, problem, tool


def main() -> int:
    """Brings ONNX Runtime, builds, times, draws."""
    from env.setup import onnxruntime

    try:
        onnxruntime.onnxruntime([onnxruntime.LINE], onnxruntime.wish())
    except ToolError as error:
        # The program says what it does without.
        problem(error)
    return train.run("onnx", ["trt-benchmark", *program.arguments()], "trt-*.svg")


if __name__ == "__main__":
    in_venv.enter("onnx")
    tool(main)
