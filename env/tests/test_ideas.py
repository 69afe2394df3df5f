"""The page of ideas in plain words: one picture and one lesson an idea, and pictures as `env/pictures` makes them."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from env.notebooks import ROOT
from env.pictures import __main__ as ideas
from env.pictures.svg import PICTURES, WIDTH, render

PAGE = (ROOT / "docs" / "plain-words.md").read_text(encoding="utf-8")
IDEAS = {part.splitlines()[0]: part for part in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]}
IMAGE = re.compile(r"!\[([^\]]*)\]\(pictures/([\w-]+)\.svg\)")


def test_pictures_are_as_drawn():
    assert ideas.stale() == [], "next: python3 -m env.pictures"


@pytest.mark.parametrize("idea", IDEAS)
def test_an_idea_has_one_picture_and_its_lessons(idea):
    images = IMAGE.findall(IDEAS[idea])
    assert len(images) == 1
    words, name = images[0]
    assert words == PICTURES[name][0]
    assert re.search(r"^Lesson: .*\]\(\.\./notebooks/\d\d_\w+\.ipynb\)", IDEAS[idea], flags=re.MULTILINE)


def test_every_picture_is_shown_once():
    design = (ROOT / "docs" / "DESIGN.md").read_text(encoding="utf-8")
    assert sorted(name for _, name in IMAGE.findall(PAGE + design)) == sorted(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_nothing_is_outside_the_sheet(name):
    sheet = ElementTree.fromstring(render(name))
    height = PICTURES[name][1]
    for part in sheet.iter():
        kind = part.tag.split("}")[1]
        if kind == "text":
            # A wide sans-serif needs about 0.58 of its size for a letter.
            wide = 0.58 * float(part.get("font-size", 14)) * len(part.text or "")
            start = float(part.get("x")) - {"start": 0, "middle": wide / 2, "end": wide}[part.get("text-anchor")]
            assert -6 <= start and start + wide <= WIDTH + 6, part.text
            assert 6 <= float(part.get("y")) <= height - 4, part.text
        if kind == "rect" and part.get("class") != "paper":
            x, y, w, h = (float(part.get(key)) for key in ("x", "y", "width", "height"))
            assert x >= 0 and y >= 0 and x + w <= WIDTH and y + h <= height, (x, y, w, h)


def test_a_stale_and_a_foreign_picture_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(ideas, "FOLDER", tmp_path)
    names = list(PICTURES)
    assert ideas.stale() == sorted(names)
    ideas.main()
    assert ideas.stale() == []
    (tmp_path / "warp.svg").write_text("<svg/>")
    (tmp_path / "nobody.svg").write_text("<svg/>")
    assert ideas.stale() == ["nobody", "warp"]


def test_the_contents_name_every_idea():
    contents = " ".join(PAGE.partition("\n## ")[0].split())
    assert [idea for idea in IDEAS if f"[{idea}](#" not in contents] == []
