"""Draws docs/pictures/crates.svg: who may import whom in the workspace, as the manifests say.

The other pictures in that folder are SVG files without a source: they are changed in an editor, an element a line.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape

from env.paths import ROOT, write_text

FILE = ROOT / "docs" / "pictures" / "crates.svg"
TITLE = "The crates of the workspace: arrows lead to the crates that a crate may import"
FONTS = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Noto Sans, Arial, sans-serif"
STYLE = "svg{color:#1a1a1a}.paper{fill:#fff}@media(prefers-color-scheme:dark){svg{color:#e8e8e8}.paper{fill:#1e1e1e}}"
# Those of crates/measure/src/plot/canvas.rs, where a test asks that each stands out on white and on black.
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#00946c", "#7f7f7f"
SHEET, WIDE, HIGH, STEP, LEFT, TOP = 760, 172, 44, 66, 12, 14


@cache
def manifests() -> dict[str, tuple[str, dict[str, bool]]]:
    """Each crate's first clause of its description, and the crates of the workspace it depends on (True: optional)."""
    found = {}
    for path in [ROOT / "support-crate" / "Cargo.toml", *sorted((ROOT / "crates").glob("*/Cargo.toml"))]:
        # What readers copy is no part of the course's programs.
        if path.parent.name == "template":
            continue
        text = path.read_text(encoding="utf-8")
        values = dict(re.findall(r'^(name|description) = "(.*)"$', text.partition("\n[")[0], flags=re.MULTILINE))
        body = re.search(r"^\[dependencies\]\n(.*?)(?=^\[|\Z)", text, flags=re.MULTILINE | re.DOTALL)
        lines = body.group(1).splitlines() if body else []
        of_workspace = [entry for entry in lines if re.match(r"(gpulab|warpsim)\b", entry)]
        depends = {re.split(r"[. ]", entry)[0]: "optional = true" in entry for entry in of_workspace}
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


def number(value: float) -> str:
    """At most one digit after the point: a tenth of a pixel is enough."""
    return f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, words: str, more: str) -> str:
    """One line, centred."""
    place = f'x="{number(x)}" y="{number(y)}" dy="0.35em" text-anchor="middle" fill="currentColor" {more}'
    return f"<text {place}>{escape(words, quote=False)}</text>"


def line(x1: float, y1: float, x2: float, y2: float, dash: bool = False) -> str:
    """A thin one."""
    place = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
    dashes = ' stroke-dasharray="5 4"' * dash
    return f'<line {place} stroke="{GREY}" stroke-width="1.5"{dashes}/>'


def arrow(x1: float, y1: float, x2: float, y2: float, dash: bool) -> list[str]:
    """A line with a head at its second end."""
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    corners = [(x2, y2)] + [(x2 - 9 * ux + side * 4 * uy, y2 - 9 * uy - side * 4 * ux) for side in (1, -1)]
    points = " ".join(f"{number(x)},{number(y)}" for x, y in corners)
    return [line(x1, y1, x2, y2, dash), f'<polygon points="{points}" fill="{GREY}"/>']


def sheet(title: str, height: int) -> list[str]:
    """What a picture begins with; `</svg>` ends it."""
    size = f'viewBox="0 0 {SHEET} {height}" width="{SHEET}" height="{height}"'
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}" font-family="{FONTS}" font-size="14">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{SHEET}" height="{height}" rx="6"/>',
    ]


def draw() -> str:
    """The picture as SVG text."""
    by_level = [sorted(c for c in manifests() if level(c) == at) for at in range(max(map(level, manifests())) + 1)]
    places = {}
    for at, row in enumerate(reversed(by_level)):
        for crate in row:
            places[crate] = (LEFT + column(crate, row) * (SHEET - 2 * LEFT - WIDE), TOP + at * STEP)
    parts = sheet(TITLE, 8 * STEP + 6)
    for crate, (_, depends) in manifests().items():
        for below, optional in depends.items():
            # What follows from another arrow is left out.
            if any(below in needed(other) for other in depends if other != below and depends[other] <= optional):
                continue
            (x1, y1), (x2, y2) = places[crate], places[below]
            parts += arrow(x1 + WIDE / 2, y1 + HIGH, x2 + WIDE / 2 + (x1 - x2) * 0.12, y2 - 1, dash=optional)
    for crate, (x, y) in places.items():
        color = {"gpulab": ORANGE, "warpsim": GREEN}.get(crate, BLUE)
        parts.append(f'<rect class="paper" x="{x:.0f}" y="{y}" width="{WIDE}" height="{HIGH}"/>')
        place = f'x="{number(x)}" y="{y}" width="{WIDE}" height="{HIGH}" rx="3"'
        parts.append(f'<rect {place} fill="{color}" fill-opacity="0.2" stroke="{color}"/>')
        parts.append(text(x + WIDE / 2, y + 15, crate, 'font-weight="bold"'))
        parts.append(text(x + WIDE / 2, y + 32, manifests()[crate][0].replace("`", ""), 'font-size="10"'))
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    write_text(FILE, draw())
