"""The page of ideas in plain words: one picture and one lesson an idea, and pictures that can be read."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from env import crate_graph
from env.notebooks import ROOT

PAGE = (ROOT / "docs" / "plain-words.md").read_text(encoding="utf-8")
IDEAS = {part.splitlines()[0]: part for part in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]}
IMAGE = re.compile(r"!\[([^\]]*)\]\(pictures/([\w-]+)\.svg\)")
SHEETS = {path.stem: ElementTree.parse(path).getroot() for path in (ROOT / "docs" / "pictures").glob("*.svg")}


def test_the_crates_are_as_their_manifests_say():
    assert crate_graph.FILE.read_text(encoding="utf-8") == crate_graph.draw(), "next: python3 -m env.crate_graph"


@pytest.mark.parametrize("idea", IDEAS)
def test_an_idea_has_one_picture_and_its_lessons(idea):
    images = IMAGE.findall(IDEAS[idea])
    assert len(images) == 1
    words, name = images[0]
    assert words == SHEETS[name].get("aria-label")
    assert re.search(r"^Lesson: .*\]\(\.\./notebooks/\d\d[a-z]?_\w+\.ipynb\)", IDEAS[idea], flags=re.MULTILINE)


def test_every_picture_is_shown_once():
    others = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("DESIGN.md", "paths.md"))
    assert sorted(name for _, name in IMAGE.findall(PAGE + others)) == sorted(SHEETS)


@pytest.mark.parametrize("name", SHEETS)
def test_a_picture_can_be_read_on_light_and_dark_pages_and_nothing_is_outside_it(name):
    sheet = SHEETS[name]
    width, height = float(sheet.get("width")), float(sheet.get("height"))
    colors, papers = set(), 0
    for part in sheet.iter():
        kind = part.tag.split("}")[1]
        colors |= {part.get(key) for key in ("fill", "stroke")} - {None, "none", "currentColor"}
        papers += part.get("class") == "paper"
        if kind == "style":
            assert part.text == crate_graph.STYLE
        if kind == "text":
            # A wide sans-serif needs about 0.58 of its size for a letter.
            wide = 0.58 * float(part.get("font-size", 14)) * len(part.text or "")
            start = float(part.get("x")) - {"start": 0, "middle": wide / 2, "end": wide}[part.get("text-anchor")]
            assert -6 <= start and start + wide <= width + 6, part.text
            assert 6 <= float(part.get("y")) <= height - 4, part.text
            assert part.get("fill") == "currentColor"
        if kind == "rect" and part.get("class") != "paper":
            x, y, w, h = (float(part.get(key)) for key in ("x", "y", "width", "height"))
            assert x >= 0 and y >= 0 and x + w <= width and y + h <= height, (x, y, w, h)
    assert papers and width == 760
    # Those of crates/measure/src/plot/canvas.rs, where a test asks that each stands out on white and on black.
    assert colors <= {"#0072b2", "#d55e00", "#00946c", "#c4689a", "#8c7024", "#7f7f7f"}


def test_the_contents_name_every_idea():
    contents = " ".join(PAGE.partition("\n## ")[0].split())
    assert [idea for idea in IDEAS if f"[{idea}](#" not in contents] == []
