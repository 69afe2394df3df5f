"""What builds on what, and a plan for 30 days: docs/pictures/lessons.svg and the tables of docs/paths.md.

Both are made from what each lesson's first cell states, its minutes and `Builds on: …`; `python3 -m env.lesson_map` writes
them anew, and a test compares.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

from env.crate_graph import BLUE, GREEN, GREY, ORANGE, SHEET, arrow, line, number, sheet, text
from env.lint import reading_times
from env.lint.glossary import link, title
from env.notebooks import ROOT, Lesson, find, load
from env.paths import write_text

FILE = ROOT / "docs" / "pictures" / "lessons.svg"
PAGE = ROOT / "docs" / "paths.md"
TITLE = "The lessons: an arrow leads from a lesson to the one that builds on it"
BUILDS_ON = re.compile(r"Builds on: (.*?)(?=\n\s*\n|\Z)", re.DOTALL)
TARGET = re.compile(r"\]\((\d\d[a-z]?_\w+)\.ipynb\)")
COLORS = {"0": BLUE, "1": ORANGE, "2": GREEN, "3": "#c4689a", "4": "#8c7024"}
WIDE, HIGH, ACROSS, DOWN, A_ROW = 136, 40, 13, 30, 5
TOP = 12
LEFT = (SHEET - A_ROW * WIDE - (A_ROW - 1) * ACROSS) / 2
# Of 30 days: every seventh one repeats, and the last two are for a kernel of the reader's own.
DAYS, WEEK, OWN = 30, 7, 2
MARK = re.compile(r"(<!-- written by python3 -m env\.lesson_map: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)


class Map:
    """The lessons in order, and for each the ones that it says it builds on."""

    def __init__(self, lessons: list[Lesson]) -> None:
        self.lessons = {lesson.name: lesson for lesson in lessons}
        self.stated = {lesson.name: self._stated(lesson) for lesson in lessons}

    def _stated(self, lesson: Lesson) -> list[str]:
        said = BUILDS_ON.search(lesson.notebook.cells[0].source)
        # Of several sentences the first one says it; the others are about something else.
        named = TARGET.findall(re.split(r"\.\s", said[1])[0]) if said else []
        return [name for name in dict.fromkeys(named) if name in self.lessons and name != lesson.name]

    def below(self, name: str, seen: tuple[str, ...] = ()) -> set[str]:
        """All lessons that one builds on, directly or not."""
        if name in seen:
            return set()
        return {one for base in self.stated[name] for one in {base} | self.below(base, (*seen, name))}

    def drawn(self, name: str) -> list[str]:
        """The lessons that one builds on, without those that follow from the others."""
        bases = self.stated[name]
        return [base for base in bases if not any(base in self.below(other) for other in bases if other != base)]

    def level(self, name: str) -> int:
        """How long the longest way to a lesson is."""
        return max((1 + self.level(base) for base in self.stated[name]), default=0)

    def rows(self) -> list[list[str]]:
        """The lessons by level, at most five side by side, each below what it builds on."""
        levels: dict[int, list[str]] = {}
        for name in self.lessons:
            levels.setdefault(self.level(name), []).append(name)
        rows = []
        for _, names in sorted(levels.items()):
            parts = -(-len(names) // A_ROW)
            share = -(-len(names) // parts)
            rows += [names[at : at + share] for at in range(0, len(names), share)]
        return rows


def draw(lessons: list[Lesson]) -> str:
    """The picture as SVG text."""
    lesson_map = Map(lessons)
    rows = lesson_map.rows()
    places: dict[str, tuple[float, float]] = {}
    for at, row in enumerate(rows):
        width = len(row) * WIDE + (len(row) - 1) * ACROSS
        # Below the middle of what they build on, as far as the sheet allows.
        bases = [places[base][0] + WIDE / 2 for name in row for base in lesson_map.drawn(name) if base in places]
        middle = sum(bases) / len(bases) if bases else SHEET / 2
        start = min(max(middle - width / 2, LEFT), SHEET - LEFT - width)
        for column, name in enumerate(sorted(row, key=lambda name: _wanted(lesson_map, places, name))):
            places[name] = (start + column * (WIDE + ACROSS), TOP + at * (HIGH + DOWN))
    parts = sheet(TITLE, TOP + len(rows) * (HIGH + DOWN) - DOWN + 12)
    for name, (x, y) in places.items():
        for base in lesson_map.drawn(name):
            points = [(places[base][0] + WIDE / 2, places[base][1] + HIGH), *_between(rows, places, base, name)]
            for (x1, y1), (x2, y2) in pairwise(points):
                parts.append(line(x1, y1, x2, y2))
            x1, y1 = points[-1]
            parts += arrow(x1, y1, x + WIDE / 2 + (x1 - x - WIDE / 2) * 0.1, y - 1, dash=False)
    for name, (x, y) in places.items():
        color = COLORS.get(name[0], GREY)
        number_of, _, words = title(lesson_map.lessons[name]).partition(" · ")
        place = f'x="{number(x)}" y="{number(y)}" width="{WIDE}" height="{HIGH}"'
        parts.append(f'<rect class="paper" {place}/>')
        parts.append(f'<rect {place} rx="3" fill="{color}" fill-opacity="0.2" stroke="{color}"/>')
        parts.append(text(x + WIDE / 2, y + 13, number_of, 'font-weight="bold"'))
        size = min(11.0, (WIDE - 4) / (0.58 * max(1, len(words))))
        parts.append(text(x + WIDE / 2, y + 29, words, f'font-size="{number(size)}"'))
    return "\n".join([*parts, "</svg>", ""])


def _between(
    rows: list[list[str]], places: dict[str, tuple[float, float]], base: str, name: str
) -> list[tuple[float, float]]:
    """The points by which an arrow passes the rows between its ends, in the gaps beside their lessons."""
    first, last = (next(at for at, row in enumerate(rows) if one in row) for one in (base, name))
    points, x = [], places[base][0] + WIDE / 2
    for at in range(first + 1, last):
        lefts = sorted(places[one][0] for one in rows[at])
        gaps = [lefts[0] - ACROSS / 2, *(left + WIDE + ACROSS / 2 for left in lefts)]
        wanted = x + (places[name][0] + WIDE / 2 - x) / (last - at + 1)
        x, y = min(gaps, key=lambda gap: abs(gap - wanted)), TOP + at * (HIGH + DOWN)
        points += [(x, y - 2), (x, y + HIGH + 2)]
    return points


def _wanted(lesson_map: Map, places: dict[str, tuple[float, float]], name: str) -> tuple[float, str]:
    """Where a lesson would stand best in its row: below the middle of what it builds on."""
    bases = [places[base][0] for base in lesson_map.drawn(name) if base in places]
    return (sum(bases) / len(bases) if bases else 0.0, name)


def bases(lessons: list[Lesson]) -> str:
    """The table of what builds on what."""
    lesson_map = Map(lessons)
    rows = ["| lesson | builds on | minutes | quick path | optional |", "| --- | --- | ---: | ---: | ---: |"]
    for lesson in lessons:
        below = ", ".join(link(lesson_map.lessons[base]) for base in lesson_map.stated[lesson.name]) or "Rust"
        said = reading_times.stated(lesson) or reading_times.Times()
        rows.append(f"| {link(lesson)} | {below} | {said.standard:.0f} | {said.quick:.0f} | {said.optional:.0f} |")
    return "\n".join(rows) + "\n"


def plan(lessons: list[Lesson]) -> str:
    """The table of 30 days, each about as long as the others: no lesson comes before what it builds on."""
    lessons = after_their_bases(lessons)
    study = [day for day in range(1, DAYS - OWN + 1) if day % WEEK]
    minutes = [(reading_times.stated(lesson) or reading_times.Times()).standard for lesson in lessons]
    a_day = sum(minutes) / len(study)
    rows = [
        f"About {a_day:.0f} minutes a day, on the standard path.",
        "",
        "| week | days | lessons | and then |",
        "| --- | --- | --- | --- |",
    ]
    begun, cut = 0.0, []
    for lesson, takes in zip(lessons, minutes, strict=True):
        first = study[min(int(begun / a_day + 0.25), len(study) - 1)]
        begun += takes
        last = study[min(max(int(begun / a_day - 0.25), 0), len(study) - 1)]
        cut.append((lesson, first, max(first, last)))
    for week in range(1, (DAYS - OWN) // WEEK + 1):
        days = range((week - 1) * WEEK + 1, week * WEEK)
        mine = [_days(lesson, first, last) for lesson, first, last in cut if first in days]
        again = f"day {week * WEEK}: solve the exercise again that was hardest, without looking"
        rows.append(f"| {week} | {days[0]} to {days[-1]} | {'; '.join(mine) or '(the same)'} | {again} |")
    own = "a kernel of yours, in [a crate of your own](own_crate.md), with a test"
    rows.append(f"| 5 | {DAYS - OWN + 1} to {DAYS} | {own} | |")
    return "\n".join(rows) + "\n"


def after_their_bases(lessons: list[Lesson]) -> list[Lesson]:
    """The lessons in their order, but each after those that it says it builds on."""
    stated, order = Map(lessons), {}

    def put(name: str) -> None:
        if name not in order:
            for base in stated.stated[name]:
                put(base)
            order[name] = stated.lessons[name]

    for lesson in lessons:
        put(lesson.name)
    return list(order.values())


def _days(lesson: Lesson, first: int, last: int) -> str:
    """A lesson and its days, without the seventh ones."""
    days = [str(day) for day in range(first, last + 1) if day % WEEK]
    said = f"day {days[0]}" if len(days) == 1 else f"days {', '.join(days[:-1])} and {days[-1]}"
    return f"{link(lesson)} ({said})"


def written(page: str, lessons: list[Lesson]) -> str:
    """The page with its tables made anew."""
    return MARK.sub(lambda match: match[1] + {"base": bases, "plan": plan}[match[2]](lessons), page)


@cache
def all_lessons() -> list[Lesson]:
    """The course's lessons, in order."""
    return [load(path) for path in find()]


if __name__ == "__main__":
    write_text(FILE, draw(all_lessons()))
    write_text(PAGE, written(PAGE.read_text(encoding="utf-8"), all_lessons()))
