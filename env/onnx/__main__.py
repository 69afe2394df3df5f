"""`make export-onnx`: the trained models as ONNX files, checked by ONNX's own checker and compared with candle in ONNX Runtime.

What stands in ARGS goes to the program: `make export-onnx ARGS="gpt --out DIR"`, `ARGS="check FILE"`. `ARGS="--web DIR"` is for
this one: it writes a page there that runs the models in a browser.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from env import in_venv, program
from env.console import ToolError, tool


def written(output: str) -> list[Path]:
    """The files that the program says it has written."""
    lines = (line.strip() for line in output.splitlines())
    found = [line.removeprefix("written to ").rsplit(" (", 1)[0] for line in lines if line.startswith("written to ")]
    return [Path(path) for path in found]


def check(path: Path) -> str:
    """A line about a file that passes ONNX's own checker; whatever is wrong with it is onnx's own exception."""
    import onnx

    onnx.checker.check_model(str(path), full_check=True)
    # Shapes follow from the graph alone; a large model's weights need not be read.
    inferred = onnx.shape_inference.infer_shapes(
        onnx.load(path, load_external_data=False), check_type=True, strict_mode=True, data_prop=True
    )
    known = {value.name for value in [*inferred.graph.value_info, *inferred.graph.output]}
    given = {name for node in inferred.graph.node for name in node.output}
    if unknown := sorted(given - known):
        raise ValueError(f"{path}: no shape follows for {', '.join(unknown)}")
    return f"{path}: passes onnx {onnx.__version__}'s full checker, and its strict shape inference for all {len(given)} values"


def judge(files: list[Path]) -> int:
    """Prints what the checker says and the table of differences; 1 where something differs."""
    for path in files:
        print(check(path))
    try:
        from env.onnx import compare
    except ImportError:
        print("not compared with candle: there is no ONNX Runtime for this Python\nnext: use Python 3.11 or newer")
        return 0
    # Integers round: the CNN in 8 bits is judged by what it reads, below.
    exact = [path for path in files if path.stem != "cnn-int8" and path.with_suffix(".reference").is_dir()]
    rows = [row for path in exact for row in compare.compare(path)]
    if rows:
        print(compare.table(rows))
    judged = {path.stem: path for path in files}
    if {"cnn", "cnn-int8"} <= set(judged):
        from env.onnx import accuracy

        print(accuracy.table(accuracy.judge(judged["cnn"], judged["cnn-int8"])))
        print(accuracy.images(judged["cnn-int8"]))
    return int(any(not row.equal for row in rows))


def split(arguments: list[str]) -> tuple[Path | None, list[str]]:
    """The page's folder, where one is asked for, and what is the program's."""
    if arguments[-1:] == ["--web"]:
        raise ToolError("`--web` names no folder", 'make export-onnx ARGS="--web dist/onnx"')
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--web", type=Path)
    known, rest = parser.parse_known_args(arguments)
    if known.web and "check" in rest:
        raise ToolError("`check` writes no model for a page", 'make export-onnx ARGS="--web dist/onnx"')
    return known.web, rest


def page(files: list[Path], folder: Path) -> None:
    """The page for what it can run; the CNN in 8 bits is none of it."""
    from env.onnx.web import write

    first = write.page([path for path in files if path.stem != "cnn-int8"], folder)
    print(f"written to {first}: open it in a browser")


def main() -> int:
    """Builds, exports, checks, compares."""
    folder, chosen = split(program.arguments())
    reference = [] if "check" in chosen else ["--reference"]
    status, output = program.answer([program.with_candle("onnx"), "export-onnx", *chosen, *reference])
    if status:
        return status
    status = judge(files := written(output))
    if folder:
        page(files, folder)
    return status


if __name__ == "__main__":
    in_venv.enter("onnx")
    tool(main)
