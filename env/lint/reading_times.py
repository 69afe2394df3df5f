"""How long a lesson takes: an estimate from what it holds, and the two paths through the course that follow from it.

A heading that ends with `(optional)`, or begins with `Optional`, begins what neither path counts, up to the next heading of its
level.

Nobody was timed. The rates are guesses of ours, on the slow side of what is known: people read 238 words of plain
non-fiction a minute (Brysbaert, Journal of Memory and Language 109, 2019), and a lesson is denser than that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nbformat import NotebookNode

from env.lint import page_rules
from env.notebooks import Lesson, tags

WORDS_A_MINUTE = 200
LINES_A_MINUTE = 15
# Running a cell, and looking at what it shows.
CELL = 0.4
# A kernel, or what one changes in it, that a cell shows as its output.
KERNEL = 1.5
EXERCISE, EXERCISE_QUICK = 8, 6
ROUND_TO = 5
# A stated figure may differ from the estimate by this share, or by ten minutes.
SHARE, LEAST = 0.25, 10

WORD = re.compile(r"\w[\w'’.-]*")
SHOWS_KERNEL = re.compile(r"\.(?:source|diff)\(")
STATED = re.compile(r"About (\d+) minutes(?: \(quick path: (\d+)(?:; optional sections: (\d+))?\))?")
OPTIONAL = re.compile(r"Optional\b.*|.*\(optional\)")
# Who knows CUDA C reads these, runs all cells, and leaves out the exercises of 00 to 03.
READ_QUICKLY = ("Question", "Prediction", "Plot", "Exercise", "Check", "The four steps")
PARTS = {
    "0": "first steps",
    "1": "kernels",
    "2": "training",
    "3": "attention",
    "4": "inference",
    "5": "smaller models",
    "6": "several GPUs, serving",
    "9": "the whole",
}
KERNEL_PART = ("0", "1")


@dataclass
class Times:
    """Minutes on the standard path and on the quick one, and of the optional sections, which are on neither."""

    standard: float = 0.0
    quick: float = 0.0
    optional: float = 0.0

    def __add__(self, other: Times) -> Times:
        return Times(self.standard + other.standard, self.quick + other.quick, self.optional + other.optional)

    def __str__(self) -> str:
        """As a lesson states it."""
        more = f"; optional sections: {self.optional:.0f}" if self.optional else ""
        return f"About {self.standard:.0f} minutes (quick path: {self.quick:.0f}{more})"


def sections(lesson: Lesson) -> list[tuple[str, Times]]:
    """The minutes of each section, in order, by its heading; what stands before the first one is called `head`."""
    found: list[tuple[str, Times]] = []
    for cell, section, optional in walk(lesson):
        took = _cell(cell, section, first_part=lesson.name.startswith("0"))
        if not found or found[-1][0] != section:
            found.append((section, Times()))
        found[-1] = (section, found[-1][1] + (Times(optional=took.standard) if optional else took))
    return found


def walk(lesson: Lesson) -> Iterator[tuple[NotebookNode, str, bool]]:
    """Each cell with its section's heading (before the first one `head`), and whether it is optional."""
    section, optional = "head", 0
    for cell in lesson.notebook.cells:
        for one in page_rules.headings(cell.source) if cell.cell_type != "code" else ():
            section = one.text if one.level == 2 else section
            if one.level <= (optional or one.level):
                optional = one.level if OPTIONAL.fullmatch(one.text) else 0
        yield cell, section, bool(optional)


def _cell(cell, section: str, first_part: bool) -> Times:
    read = section.startswith(READ_QUICKLY)
    if cell.cell_type != "code":
        reading = len(WORD.findall("\n".join(page_rules.prose(cell.source)))) / WORDS_A_MINUTE
        return Times(reading, reading * read)
    running = CELL + KERNEL * bool(SHOWS_KERNEL.search(cell.source))
    if "exercise" in tags(cell):
        return Times(running + EXERCISE, running + EXERCISE_QUICK * (not first_part))
    reading = sum(1 for line in cell.source.splitlines() if line.strip()) / LINES_A_MINUTE
    return Times(running + reading, running + reading * read)


def estimate(lesson: Lesson) -> Times:
    """The whole lesson's minutes, in steps of five."""
    whole = sum((times for _, times in sections(lesson)), Times())
    standard, quick = (ROUND_TO * max(1, round(value / ROUND_TO)) for value in (whole.standard, whole.quick))
    return Times(standard, quick, ROUND_TO * max(whole.optional > 0, round(whole.optional / ROUND_TO)))


def stated(lesson: Lesson) -> Times | None:
    """What the lesson's first cell says, as `About 70 minutes (quick path: 45)`; None where one of the two is missing."""
    cells = lesson.notebook.cells
    match = STATED.search(cells[0].source) if cells else None
    return Times(int(match[1]), int(match[2]), int(match[3] or 0)) if match and match[2] else None


def wrong(lesson: Lesson) -> str | None:
    """What is wrong with the minutes that a lesson states."""
    said, likely = stated(lesson), estimate(lesson)
    if said is None:
        return "does not state its minutes on both paths"
    paths = (
        ("", said.standard, likely.standard),
        ("quick ", said.quick, likely.quick),
        ("optional ", said.optional, likely.optional),
    )
    for path, ours, theirs in paths:
        if abs(ours - theirs) > max(LEAST, SHARE * theirs):
            return f"states {ours:.0f} {path}minutes, and what it holds takes about {theirs:.0f}"
    return None


def hours(minutes: float) -> str:
    """`6 h 25 min`, `2 h`, `55 min`."""
    whole, rest = divmod(round(minutes), 60)
    return " ".join([f"{whole} h"] * (whole > 0) + [f"{rest} min"] * (rest > 0 or whole == 0))


def table(lessons: list[Lesson]) -> list[str]:
    """The rows of README's table of the two paths, from the minutes that the lessons state."""
    known = [(lesson.name, times) for lesson in lessons if (times := stated(lesson))]
    rows = []
    for number, part in PARTS.items():
        rows += _row(part, [one for one in known if one[0].startswith(number)])
        if number == KERNEL_PART[-1]:
            rows += _row("**the kernel part**", [one for one in known if one[0].startswith(KERNEL_PART)])
    return rows + _row("**all of it**", known)


def _row(name: str, lessons: list[tuple[str, Times]]) -> list[str]:
    if not lessons:
        return []
    whole = sum((times for _, times in lessons), Times())
    numbers = [name.partition("_")[0] for name, _ in lessons]
    which = numbers[0] if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    return [f"| {name} | {which} | {hours(whole.standard)} | {hours(whole.quick)} | {hours(whole.optional)} |"]
