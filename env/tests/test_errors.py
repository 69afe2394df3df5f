"""The page of troubles against the sources: each kind of error has a row, and rows quote what is printed."""

from __future__ import annotations

import pytest
from env.lint import error_rows

KINDS = error_rows.kinds()


@pytest.mark.parametrize(
    "kind",
    [
        "Error::NoGpu",
        "Invalid in kernels/topics",
        "Invalid in measure",
        "Invalid in lesson",
        "Unsupported in nn/gpt",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "simulator: deadlock",
        "simulator: data race in shared memory",
        "simulator: Syntax",
        "env/setup",
        "env/in_venv.py",
    ],
)
def test_kinds_are_read_from_the_sources(kind):
    assert kind in KINDS


def test_a_new_kind_is_missed_and_a_stale_row_named():
    page = error_rows.PAGE.read_text(encoding="utf-8")
    assert list(error_rows.wrong(page, KINDS)) == []
    found = [what for what, _ in error_rows.wrong(page, KINDS | {"Error::TooCold"})]
    assert found == ["no row is for `Error::TooCold`"]
    found = [what for what, _ in error_rows.wrong(page, KINDS - {"Error::NoGpu"})]
    assert found == ["a row is for `Error::NoGpu`, which the project does not have"]


def test_a_quotation_is_what_the_project_prints():
    row = "| `{}` <!-- for: Error::NoGpu --> | cause | fix |"
    assert list(error_rows.misquoted(row.format("no GPU was found:"))) == []
    assert list(error_rows.misquoted(row.format("out of device memory: … asked, … free of …"))) == []
    assert list(error_rows.misquoted(row.format("your GPU is too cold"))) == ["your GPU is too cold"]


def test_several_kinds_share_a_row():
    rows = error_rows.explained("| `a` <!-- for: Error::A; File in b --> | x | y |\n| no mark | x | y |\n")
    assert sorted(rows) == ["Error::A", "File in b"]
