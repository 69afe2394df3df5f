"""The whole book, built once: complete, without solutions, with links that lead somewhere. Planted faults are found."""

from __future__ import annotations

import base64
import gzip
import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from env import in_venv
from env.book import broken_links, experiments, look, site
from env.ci import browser
from env.console import ToolError
from env.notebooks import ROOT, find, load

# The page of experiments, without the program: cargo makes that, and the browser runs it (`python3 -m env.book --look`).
SLIDER = {"label": "stride", "values": [1, 2, 4], "words": [], "first": 1}
EXPERIMENT = {
    "name": "sectors",
    "title": "A stride",
    "task": "Each thread reads `stride` elements from its neighbour's.",
    "lesson": "10_vector_add",
    "sliders": [SLIDER],
    "kernels": [{"file": "kernel.cu", "text": "if (i < n) c[i] = 1;", "ptx": "</script><b>"}],
    "picture": "<svg><title>drawn before</title></svg>",
    "table": "<table></table>",
}
LIVE = experiments.Experiments([EXPERIMENT], b"program")
PAGE = "<!doctype html><title>t</title><h1 id='top'>t</h1>"


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("book") / "site"
    built = site.build(out, LIVE)
    assert built.pages == len(list(out.rglob("*.html")))
    assert sorted(built.lessons) == sorted(path.stem for path in find())
    return out


def test_nothing_in_it_is_broken(book: Path):
    assert broken_links.broken(book) == []


def test_each_lesson_states_what_a_reader_wants_to_know(book: Path):
    for path in find():
        page = (book / "lessons" / f"{path.stem}.html").read_text(encoding="utf-8")
        for fact in ("Time", "Builds on", "Outputs", "Run it yourself"):
            assert f"<dt>{fact}</dt>" in page, f"{path.stem}: {fact}"
        assert page.count('class="cell exercise"') == sum(
            "exercise" in cell.metadata.get("tags", []) for cell in load(path).code
        )
        assert re.search(r"recorded on\s+<p><a href=\"\.\./records/|none yet", page), path.stem


def test_an_experiment_is_whole_without_scripts_and_its_lesson_leads_to_it(book: Path):
    page = (book / experiments.OUT).read_text(encoding="utf-8")
    assert "drawn before" in page and "<code>stride</code>" in page and "if (i &lt; n) c[i] = 1;" in page
    assert 'max="2" step="1" value="1"' in page
    assert "experiments.html#sectors" in (book / "lessons/10_vector_add.html").read_text(encoding="utf-8")
    assert "Try it here" not in (book / "lessons/11_reduction.html").read_text(encoding="utf-8")
    data = (book / "static/experiments-data.js").read_text(encoding="utf-8")
    assert json.loads(data.removeprefix("window.gpulabExperiments = ").rstrip(";\n"))["sectors"]["sliders"] == [SLIDER]
    packed = (book / "static/warpsim.js").read_text(encoding="utf-8").split('"')[1]
    assert gzip.decompress(base64.b64decode(packed)) == b"program"


def test_no_solution_is_in_it(book: Path):
    pages = {path: plain(path.read_text(encoding="utf-8")) for path in book.rglob("*.html")}
    count = 0
    for path in find():
        exercises = [cell.source for cell in load(path).code if "exercise" in cell.metadata.get("tags", [])]
        lesson = pages[book / "lessons" / f"{path.stem}.html"]
        # So compared, what is shown is found.
        assert all(plain(html.escape(source)) in lesson for source in exercises), path.stem
        for name, solution in load(path).solutions.items():
            # Its lines may well stand elsewhere, in a kernel of a ladder, say; all of them in order would be the solution.
            count += 1
            showing = [page.name for page, text in pages.items() if plain(solution) in text]
            assert not showing, f"{showing} show the solution of {name}"
    assert count > 40


def plain(text: str) -> str:
    return re.sub(r"\s+", "", html.unescape(re.sub(r"</?(?:span|code|b|a|pre|div)\b[^>]*>", "", text)))


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path):
    (tmp_path / "letters.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ToolError, match="not the book's"):
        site.build(tmp_path)
    assert (tmp_path / "letters.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<a href='gone.html'>x</a>", "no such file"),
        ("<a href='#gone'>x</a>", "no such part"),
        ("<a href='other.html#gone'>x</a>", "no such part"),
        ("<script src='https://cdn.example/x.js'></script>", "fetches https://cdn.example"),
        ("<link rel='stylesheet' href='//cdn.example/x.css'>", "fetches //cdn.example"),
        ("<style>@import url(https://fonts.example/a.css)</style>", "fetches https://fonts.example"),
        ("<img src='data:image/png;base64,AAAA'>", "no alternative text"),
        ("<p id='top'>x</p>", "the id `top` twice"),
    ],
)
def test_a_planted_fault_is_found(tmp_path: Path, body: str, said: str):
    (tmp_path / "other.html").write_text(PAGE, encoding="utf-8")
    page = tmp_path / "index.html"
    page.write_text(f"{PAGE}<a href='other.html#top'>x</a><a href='https://example.org/'>x</a>", encoding="utf-8")
    assert broken_links.broken(tmp_path) == []
    page.write_text(PAGE + body, encoding="utf-8")
    found = broken_links.broken(tmp_path)
    assert len(found) == 1 and said in found[0] and "\nnext: " in found[0]


@pytest.mark.skipif(browser.chromium() is None, reason="no Chromium on PATH")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<script>fetch('http://127.0.0.1:9/x').catch(() => 0)</script>", "asks for http://127.0.0.1:9/x"),
        ("<script>missing()</script>", "missing is not defined"),
        ("<div style='width:900px'>wide</div>", "900|9\\d\\d pixels wide"),
    ],
)
def test_the_browser_sees_a_planted_fault(tmp_path: Path, body: str, said: str):
    (tmp_path / "index.html").write_text(PAGE + body, encoding="utf-8")
    with pytest.raises(ToolError, match=said):
        look.look(tmp_path, str(browser.chromium()), tmp_path / "pictures")


def test_the_command_replaces_an_older_book_and_says_what_it_made(book: Path, tmp_path: Path):
    (book / "old.html").write_text(PAGE, encoding="utf-8")
    done = command(book)
    assert done.returncode == 0, done.stderr
    assert re.search(r"book: \d+ pages, \d+\.\d MB, \d+\.\d s", done.stdout)
    assert not (book / "old.html").exists() and (book / "index.html").exists()
    (tmp_path / "file").write_text("x", encoding="utf-8")
    done = command(tmp_path / "file")
    assert done.returncode == 1 and "\nnext: " in done.stderr and "Traceback" not in done.stderr


def command(out: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "env/book/__main__.py", "--no-experiments", "--out", str(out)]
    return subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, env={**os.environ, in_venv.DONE: "1"}, check=False
    )
