"""Private words: each found where it is one, and its ordinary uses left alone."""

from __future__ import annotations

import json

import nbformat
import pytest
from env.lint import words

from conftest import KERNELSPEC

FOUND = {
    "If all 32 do, it takes 32 turns.": "32 turns",
    "two turns of shared memory": "two turns",
    "All rungs in turns with cuBLAS": "in turns",
    "the 64 places for warps": "places for warps",
    "Each block waits for free places.": "free places",
    "Two threads that touch the same place": "touch the same place",
    "The way back costs twice as much.": "way back",
    "linear layers, both ways": "both ways",
    "2000 rounds for each number": "2000 rounds",
    "next: mend one of the two": "mend",
    "numbers that came and went": "came and went",
    "33 lines came, 4 went": "lines came",
    "128 numbers of a head": "numbers of a head",
    "It switches off the light.": "switches off the light",
    "64 warps are at home on each": "at home on",
    "1.6 MB must be under way": "under way",
    "Some steps in each kind of number": "kind of number",
    "12 bytes an element": "bytes an element",
    "255 registers a thread": "registers a thread",
    "each is held against float64": "held against",
    "Hold each line against the pseudocode.": "Hold each line against",
    "which were timed in turn": "timed in turn",
    "Each thread is a cook.": "Each thread is a cook",
}
ORDINARY = """It turns out, in turn, that this turns into a loop; taking turns; a turn of phrase; many turns out to be few.
In place of that, it takes place in the right place, in many places, at two decimal places, at the same place on the axis.
By the way, in two ways, both ways to write tokens, on the way back to the host, an 8-way conflict, a way out.
A round number, a round trip, it rounds to even, rounds off, each round trip. The amendment. What went wrong came before.
So many instructions a warp has waited; it loads a row, writes a byte, launches a block. How many threads a block has.
The head dimension, one head, the number of heads. Go home. Under the way. Hold on. Against it."""


@pytest.mark.parametrize("text", FOUND)
def test_a_private_word_is_found(text):
    assert FOUND[text] in [word for word, _, _ in words.of_text(text)]


@pytest.mark.parametrize("line", ORDINARY.splitlines())
def test_ordinary_uses_pass(line):
    assert list(words.of_text(line)) == []


def test_every_rule_has_an_example():
    assert all(any(pattern.search(text) for text in FOUND) for pattern, _ in words.RULES)


def planted(folder, name: str, text: str) -> list[str]:
    path = folder / name
    path.write_text(text)
    return [str(finding) for finding in words.check(path)]


def test_pages_without_their_code(tmp_path):
    found = planted(tmp_path, "a.md", "# A\n\nIt takes\n32 turns. `mend_sums`, `in turns`\n\n```text\nin turns\n```\n")
    assert len(found) == 1 and "a.md, line 3: `32 turns`" in found[0] and "next: write wavefronts" in found[0]


def test_comments_and_strings_of_sources_without_names(tmp_path):
    source = 'fn mend(mend: u8) {}\n// all of it under\n// way\nlet a = "mend it"; // fine\nlet rounds = 2;\n'
    found = planted(tmp_path, "a.rs", source)
    assert ["line 2: `under way`" in found[0], "line 4: `mend`" in found[1], len(found)] == [True, True, 2]
    found = planted(tmp_path, "a.py", 'mend = 1  # 12 bytes an element\n"""In turns."""\nx = "in turns"\n')
    assert [f"line {line}:" in one for line, one in enumerate(found, 1)] == [True] * 3


def test_cells_of_a_notebook(tmp_path):
    cells = [
        nbformat.v4.new_markdown_cell("Bytes under way, and `under way`."),
        nbformat.v4.new_code_cell('let under_way = 1; // 4 bytes a lane\nplot("bytes under way");'),
    ]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": dict(KERNELSPEC)})
    found = planted(tmp_path, "02_a.ipynb", json.dumps(notebook))
    assert [("cell 1" in one, "cell 2" in one) for one in found] == [(True, False), (False, True), (False, True)]


def test_the_list_of_open_files_may_only_become_shorter(tmp_path):
    file = tmp_path / "open.txt"
    file.write_text("# why\nwith\nwithout\nnone\nwith\n")
    one = words.Finding(tmp_path / "with.ipynb", "cell 1", "x", "y")
    new = words.Finding(tmp_path / "new.ipynb", "cell 1", "x", "y")
    found = words.listed({"with": [one], "without": [], "new": [new]}, words.still_open(file), file)
    said = "\n".join(map(str, found))
    assert "new.ipynb" in said and "with.ipynb" not in said
    assert "`without` has no finding any more" in said and "`none` is none of the files" in said
    assert "`with` stands there twice" in said


def test_the_list_is_as_the_course_is():
    from env.lint import file_rules

    found = words.findings(file_rules.files())
    if not found:
        pytest.skip("not a git checkout")
    assert words.listed(found, words.still_open()) == []
