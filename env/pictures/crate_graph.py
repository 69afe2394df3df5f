"""The picture of the workspace's crates: who may import whom, as their manifests say."""

from __future__ import annotations

import re
from functools import cache

from env.paths import ROOT
from env.pictures.svg import BLUE, GREEN, GREY, ORANGE, Picture, picture

WIDE, HIGH, STEP, LEFT = 172, 44, 66, 12
TOP = 14


@cache
def manifests() -> dict[str, tuple[str, dict[str, bool]]]:
    """Each crate's first clause of its description, and the crates of the workspace it depends on (True: optional)."""
    found = {}
    for path in [ROOT / "support-crate" / "Cargo.toml", *sorted((ROOT / "crates").glob("*/Cargo.toml"))]:
        text = path.read_text(encoding="utf-8")
        values = dict(re.findall(r'^(name|description) = "(.*)"$', text.partition("\n[")[0], flags=re.MULTILINE))
        body = re.search(r"^\[dependencies\]\n(.*?)(?=^\[|\Z)", text, flags=re.MULTILINE | re.DOTALL)
        lines = body.group(1).splitlines() if body else []
        of_workspace = [line for line in lines if re.match(r"(gpulab|warpsim)\b", line)]
        depends = {re.split(r"[. ]", line)[0]: "optional = true" in line for line in of_workspace}
        found[values["name"]] = (re.split(r"[:,.]", values["description"])[0], depends)
    return found


@cache
def level(crate: str) -> int:
    """0 for a crate that depends on no other, else one more than the highest below it."""
    return max((1 + level(below) for below in manifests()[crate][1]), default=0)


@cache
def needed(crate: str) -> frozenset[str]:
    """All crates below that it cannot be built without."""
    below = [name for name, optional in manifests()[crate][1].items() if not optional]
    return frozenset(below).union(*(needed(name) for name in below))


def column(crate: str, row: list[str]) -> float:
    """Where it stands in its row, 0 to 1: a crate alone in its row above the one that it is about."""
    if len(row) > 1:
        return row.index(crate) / (len(row) - 1)
    return 0.0 if crate in ("gpulab-onnx", "gpulab-lessons") else 0.5


@picture("crates", "The crates of the workspace: arrows lead to the crates that a crate may import", 8 * STEP + 6)
def crates(p: Picture) -> None:
    by_level = [sorted(c for c in manifests() if level(c) == at) for at in range(max(map(level, manifests())) + 1)]
    places = {}
    for at, row in enumerate(reversed(by_level)):
        for crate in row:
            places[crate] = (LEFT + column(crate, row) * (760 - 2 * LEFT - WIDE), TOP + at * STEP)
    for crate, (_, depends) in manifests().items():
        for below, optional in depends.items():
            # What follows from another arrow is left out.
            if any(below in needed(other) for other in depends if other != below and depends[other] <= optional):
                continue
            (x1, y1), (x2, y2) = places[crate], places[below]
            p.arrow(x1 + WIDE / 2, y1 + HIGH, x2 + WIDE / 2 + (x1 - x2) * 0.12, y2 - 1, GREY, dash=optional)
    for crate, (x, y) in places.items():
        color = {"gpulab": ORANGE, "warpsim": GREEN}.get(crate, BLUE)
        p.parts.append(f'<rect class="paper" x="{x:.0f}" y="{y}" width="{WIDE}" height="{HIGH}"/>')
        p.box(x, y, WIDE, HIGH, color, fill=0.2)
        p.text(x + WIDE / 2, y + 15, crate, bold=True)
        p.text(x + WIDE / 2, y + 32, manifests()[crate][0].replace("`", ""), size=10)
