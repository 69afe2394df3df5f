"""What one lesson's `:dep` lines have built serves the next."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache

from env.ci import steps
from env.kernel_cache import recipe
from env.notebooks import FOLDER, ROOT

LOAD = re.compile(r':dep ([\w-]+) = \{ path = "[^"]+"(?:, features = \[([^\]]*)\])? \}')


@cache
def crates(lines: str) -> set[str]:
    """Every crate that a kernel with these lines builds: name, version, features."""
    chosen: list[str] = []
    for name, features in (LOAD.fullmatch(line).groups() for line in lines.splitlines()):
        chosen += ["--package", name]
        for feature in re.findall(r"\w+", features or ""):
            chosen += ["--features", f"{name}/{feature}"]
    return tree("normal,build", chosen)


def tree(edges: str, chosen: list[str]) -> set[str]:
    """The same of any choice of packages and features."""
    command = ["cargo", "tree", "--locked", "--edges", edges, "--prefix", "none", "--format", "{p} {f}", *chosen]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {line.removesuffix(" (*)") for line in done.stdout.splitlines() if line}


def lessons() -> dict[str, str]:
    """The lines of each lesson."""
    found = {
        file.stem: recipe.dep_lines(json.loads(file.read_text(encoding="utf-8"))) for file in FOLDER.glob("*.ipynb")
    }
    return {name: lines for name, lines in found.items() if lines}


def test_fewer_of_the_crates_that_were_built_need_no_build():
    """A crate with another list of features is another crate to cargo, and so are all that stand on it."""
    sets = {recipe.PLAIN, *lessons().values()}
    pairs = [(few, many) for few in sets for many in sets if few != many and recipe.serves([many], few)]
    assert len(pairs) > 3
    for few, many in pairs:
        name = f"{recipe.crates(few)} beside {recipe.crates(many)}"
        assert crates(few) <= crates(many), f"{name}: built anew: {crates(few) - crates(many)}"


def test_what_is_built_together_needs_no_build_alone():
    """The set-up builds for several lessons at once (`together`), and each kernel then asks for its own set."""
    sets = [lines for lines in lessons().values() if not recipe.serves([recipe.PLAIN], lines)]
    groups = recipe.together(sets)
    assert {one for group in groups for one in group} == set(sets) and len(groups) < len(set(sets)) / 2
    for group in groups:
        built = crates(recipe.union(group))
        for lines in group:
            assert crates(lines) <= built, f"{recipe.crates(lines)}: built anew: {crates(lines) - built}"


def test_candle_is_built_once_for_all_lessons():
    """It takes minutes, with CUDA above all."""
    asked = {lines for lines in lessons().values() if "gpulab-nn" in lines or "gpulab-onnx" in lines}
    with_candle = {lines: {one for one in crates(lines) if one.startswith("candle-")} for lines in asked}
    others = {lines: {one for one in crates(lines) if "(/" not in one} for lines in asked}
    assert len(asked) > 1 and all(with_candle.values())
    first = next(lines for name, lines in lessons().items() if name.startswith("20_"))
    for lines in asked:
        assert others[first] <= others[lines], f"{recipe.crates(lines)} builds others: {others[first] - others[lines]}"


def test_what_the_tests_have_built_serves_the_notebooks():
    """polars, candle and all below them. The crates that every set-up builds are few, and built anew."""
    built = {name: tree("normal,build,dev", chosen) for name, chosen in steps.BUILDS.items()}
    for lines in {*lessons().values()} - {recipe.PLAIN}:
        if not recipe.serves([recipe.PLAIN], lines):
            others = {one for one in crates(lines) if "(/" not in one}
            assert others
            if not recipe.is_large(lines):
                # It goes on from the plain one.
                others -= crates(recipe.PLAIN)
            # Its own tests pack, too: a feature that no lesson has.
            missing = {
                one for one in others - built["tables" if "gpulab-tables" in lines else "candle"] if "lzma" not in one
            }
            assert not missing, f"{recipe.crates(lines)} builds anew: {missing}"


def test_no_set_joins_one_with_other_features():
    one, two = recipe.PLAIN.splitlines()[:2]
    candle, polars = (f':dep gpulab-{name} = {{ path = "../crates/{name}" }}' for name in ("nn", "tables"))
    assert recipe.together([one, two, f"{one}\n{two}", one]) == [[one, two, f"{one}\n{two}"]]
    assert recipe.together([one, candle, polars, f"{one}\n{candle}"]) == [[one], [candle, f"{one}\n{candle}"], [polars]]
    assert len(recipe.together([two, two.replace(" }", ', features = ["onnx"] }')])) == 2
    assert recipe.union([one, f"{one}\n{two}"]) == f"{one}\n{two}"


def test_only_what_names_a_set_serves_it():
    one, two = recipe.PLAIN.splitlines()[:2]
    assert recipe.serves([one, f"{one}\n{two}"], two) and recipe.serves([f"{two}\n{one}"], f"{one}\n{two}")
    assert not recipe.serves([one, two], f"{one}\n{two}") and not recipe.serves([], one)
    candle = ':dep gpulab-nn = { path = "../crates/nn" }'
    assert not recipe.serves([f"{recipe.PLAIN}\n{candle}"], recipe.PLAIN)
    assert recipe.serves([f"{recipe.PLAIN}\n{candle}"], f"{one}\n{candle}")
    assert not recipe.serves([f"{one}\n{two}"], two.replace(" }", ', features = ["onnx"] }'))
    assert recipe.crates(f"{one}\n{two}") == "gpulab, gpulab-kernels"
