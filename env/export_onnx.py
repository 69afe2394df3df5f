"""`make export-onnx`: the trained models as ONNX files, held against ONNX's own checker and shape inference."""

from __future__ import annotations

import os
import shlex
import sys

import inside
import train


def written(output: str) -> list[str]:
    """The files that the program says it has written."""
    lines = (line.strip() for line in output.splitlines())
    return [line.removeprefix("written to ").rsplit(" (", 1)[0] for line in lines if line.startswith("written to ")]


def check(path: str) -> str:
    """A line about a file that passes; whatever is wrong with it is onnx's own exception."""
    import onnx

    onnx.checker.check_model(path, full_check=True)
    model = onnx.load(path, load_external_data=False)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    return f"{path}: passes onnx {onnx.__version__}'s checker and its strict shape inference"


def main() -> int:
    """Builds, exports, checks."""
    from install.console import SetupError, problem

    arguments = [*sys.argv[1:], *shlex.split(os.environ.get("ARGS", ""))]
    try:
        train.build("export")
    except SetupError as error:
        problem(error)
        return 1
    status, output = train.answer(["export-onnx", *arguments])
    print(output, end="")
    for path in written(output):
        print(check(path))
    return status


if __name__ == "__main__":
    inside.enter()
    sys.exit(main())
