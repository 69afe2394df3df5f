"""Executed copies have their lessons' text, and nothing else of them changes."""

from __future__ import annotations

from env.paths import ROOT, RUN
from env.run.current_text import current, is_record
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output


def test_text_is_the_lessons_and_outputs_are_the_runs():
    shown = [new_output("stream", text="2.06 times\n")]
    ran = new_notebook(
        cells=[
            new_markdown_cell("No faster.", id="read"),
            new_code_cell("race(8)", id="race", outputs=shown),
            new_code_cell("gone()", id="gone"),
            new_markdown_cell("Gone.", id="gone-read"),
        ],
        metadata={"gpulab": {"seconds": 3}},
    )
    lesson = new_notebook(
        cells=[
            new_code_cell("race(16)", id="race"),
            new_markdown_cell("Twice as fast: [why](../docs/why.md).", id="read"),
            new_code_cell("added()", id="added"),
        ]
    )
    made = current(ran, lesson)
    assert [cell.id for cell in made.cells] == ["race", "read", "added"]
    race, read, added = made.cells
    assert (race.source, race.outputs) == ("race(8)", shown), "what ran stays beside what it printed"
    assert read.source == "Twice as fast: [why](../../docs/why.md)."
    assert added.outputs == []
    assert made.metadata == ran.metadata
    assert ran.cells[0].source == "No faster.", "the run itself is left alone"
    assert current(made, lesson) == made


def test_what_make_run_writes_is_no_record():
    assert is_record(ROOT / "results" / "h200")
    assert not is_record(RUN) and not is_record(RUN / "test") and not is_record(ROOT / "results")
