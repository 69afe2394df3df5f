"""What one lesson's `:dep` line has built serves the next."""

from __future__ import annotations

import json
import re
import subprocess

from notebooks import FOLDER, ROOT
from warm import recipe


def crates(features: str) -> set[str]:
    """Every crate behind the support crate with these features: name, version, features."""
    command = ["cargo", "tree", "--package", "gpulab", "--edges", "normal,build", "--prefix", "none"]
    done = subprocess.run(
        [*command, "--format", "{p} {f}", "--features", features], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = (line.removesuffix(" (*)") for line in done.stdout.splitlines())
    return {line for line in lines if line and not line.startswith("gpulab ")}


def test_candle_is_built_once_for_all_lessons():
    """A crate with another list of features is another crate to cargo, and so are all that stand on it."""
    lines = {recipe.dep_line(json.loads(file.read_text(encoding="utf-8"))) or "" for file in FOLDER.glob("*.ipynb")}
    asked = {",".join(re.findall(r'"(\w+)"', line.partition("features")[2])) for line in lines}
    trees = {features: crates(features) for features in asked if features}
    with_candle = {features: tree for features, tree in trees.items() if any("candle-core " in one for one in tree)}
    assert {"candle", "export,ort"} <= set(with_candle)
    for features, tree in with_candle.items():
        assert with_candle["candle"] <= tree, f"{features} builds others: {with_candle['candle'] - tree}"
