"""The rows of metrics.csv, which the support crate appends: counting them, and replacing a recorded run's."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path

from env.console import ToolError
from env.notebooks import relative, write


def read(path: Path) -> list[dict[str, str]]:
    """All rows; none when there is no file."""
    if not path.exists():
        return []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        text = f"cannot read {relative(path)}: {error}"
        raise ToolError(text, "move the file away; the next run starts a new one") from error


def rows_by_lesson(path: Path) -> Counter[str]:
    """How many rows each lesson has."""
    return Counter(row.get("lesson") or "" for row in read(path))


def keep_latest(path: Path, lessons: list[str], since: str) -> None:
    """Drops rows of `lessons` older than `since` (RFC 3339, UTC): a recorded run shows each lesson once."""
    rows = read(path)
    kept = [row for row in rows if row.get("lesson") not in lessons or (row.get("time") or "") >= since]
    if len(kept) != len(rows):
        _write(path, list(rows[0]), kept)


def replace(path: Path, lessons: list[str], rows: list[dict[str, str]]) -> None:
    """Puts those of `rows` that are of these lessons in the place of the file's own."""
    before = read(path)
    kept = [row for row in before if row.get("lesson") not in lessons]
    if fields := list(next(iter([*before, *rows]), [])):
        _write(path, fields, kept + [row for row in rows if row.get("lesson") in lessons])


def _write(path: Path, fields: list[str], rows: list[dict[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write(path, text.getvalue())
