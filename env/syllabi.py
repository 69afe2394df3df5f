#!/usr/bin/env python3
"""Courses made of the lessons: the tables of docs/syllabi.md, with their minutes; `python3 -m env.syllabi` writes them anew.

A unit names its lessons; a lesson with a `~` is taken on the quick path. What a course leaves out follows from that. What a
learner then can do is the objective of the lesson's notes, on the quick path that of `PARTS` below, which also says by which
exercises and exam questions it is shown, and what to leave out first.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace

from env import in_venv

if __name__ == "__main__":
    # Before nbformat is asked for.
    in_venv.enter(set_up=False)

from env import lesson_map
from env.lint import page_rules, reading_times
from env.notebooks import ROOT, Lesson, find, load, tags, write
from env.slides import notes

PAGE = ROOT / "docs" / "syllabi.md"
EXAM = ROOT / "docs" / "exam.md"
MARK = re.compile(r"(<!-- written by python3 -m env\.syllabi: ([\w-]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
QUESTION = re.compile(r"^### ([A-Z]\d+) ·", re.MULTILINE)
# Of the plan that `env.lesson_map` writes: a lesson and its days.
DAYS = re.compile(r"\(\.\./notebooks/(\w+)\.ipynb\) \(days? ([^)]*)\)")


@dataclass(frozen=True)
class Course:
    """Units of lessons; `unit` is what one is called, and a class has `minutes` for each."""

    unit: str
    minutes: int
    units: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """What a course says of a lesson beside its notes.

    `skip` has pieces of headings and names of exercises, in the order in which to leave them out; `shown` names exercises and
    exam questions that show the objective; `quick` is the objective on the quick path, and `shown_quick` shows that.
    """

    skip: tuple[str, ...]
    shown: tuple[str, ...]
    quick: str = ""
    shown_quick: tuple[str, ...] = ()


COURSES = {
    "semester": Course("week", 200, (
        "00 01", "02", "03", "10", "11", "12a 12b", "12c 13", "14 15", "16 17a", "20 20a~ 21~", "30 31a", "40 22~", "41 50~", "60 62",
    )),
    "six-weeks": Course("week", 240, ("00 01 02", "03 10", "11 14", "12a 13", "16 12b", "12c 17a")),
    "two-days": Course("half day", 180, ("00 02~ 03~ 10~", "11~ 13~", "12a~ 14~", "16~ 12c~")),
    "half-day": Course("hour and a half", 95, ("00 10~", "11~")),
}  # fmt: skip
# All lessons, on the days of the plan in docs/paths.md.
DAILY = "thirty-days"

PARTS = {
    "00": Part(("What the hardware would count",), ("T1", "T6")),
    "01": Part(("Was it fair", "Clocks, caches and cores"), ("layer_batch", "fix_mismatch")),
    "02": Part(
        ("From which size on", "What a launch costs"),
        ("time_kernel", "find_fault", "T3", "T5"),
        "says which of two programs a faster kernel makes faster, and where a late error comes from",
        ("T3", "T5"),
    ),
    "03": Part(
        ("Memory that both can name", "Two regimes of a copy"),
        ("best_chunks", "largest_batch", "M1", "M2"),
        "gives a pool's used and reserved bytes after each of four steps, and the least time of a pipeline on streams",
        ("M1", "M2"),
    ),
    "10": Part(
        ("Beneath `gpulab`", "Up to the copy"),
        ("scale", "planes", "S1", "S2", "S3"),
        "launches a guarded kernel for any size, and computes the sectors that one load of a warp touches",
        ("scale", "S1", "S2"),
    ),
    "11": Part(
        ("Beside the CPU",),
        ("dot", "scan", "B3", "B4"),
        "says which additions are lost when everybody adds, and counts the barriers and atomics of a given sum",
        ("dot", "B3", "B4"),
    ),
    "12a": Part(
        ("The roofline", "Registers and occupancy"),
        ("product", "memory_limit", "P1"),
        "counts reads per multiply-add for a given tile, and says from that how fast a kernel can be at most",
        ("memory_limit", "P1"),
    ),
    "12b": Part(
        ("Rung 11: persistent blocks",),
        ("product_loop", "wave_share", "P2"),
    ),
    "12c": Part(
        ("What mma.sync can do at best",),
        ("mma_tile", "first_bank"),
        "says why the first kernel on tensor cores is slow, and computes in which bank a swizzled piece begins",
        ("first_bank",),
    ),
    "12d": Part(
        ("What is left to gain", "Rung 09: the epilogue"),
        ("wgmma_tile", "ring_suspect"),
        "follows stages and parities of a ring through several tiles, and says at which lengths a miscount does not show",
        ("ring_suspect",),
    ),
    "13": Part(
        ("Why language models need it",),
        ("gather_four", "straddling_rows", "S6"),
        "computes how many bytes memory hands out for a row of any width, and which share of them is used",
        ("straddling_rows", "S6"),
    ),
    "14": Part(
        ("What it costs its author",),
        ("add_rms_norm", "fused_share", "F1", "F3"),
        "counts the bytes of a chain and of its fused kernel, and says of a kernel with fewer bytes why it is slower",
        ("fused_share", "F1", "F3"),
    ),
    "15": Part(("And the file", "keep_fares"), ("group_by_zone", "R1", "R2", "R3")),
    "15a": Part(("What does not fit into array operations", "pass_bytes"), ("masked_normalise", "R4", "R5")),
    "16": Part(
        ("The matmul", "case_two"),
        ("case_one", "P5"),
        "names for a given profile the part that is near its limit, what the warps wait for, and what to try first",
        ("case_one", "P5"),
    ),
    "17a": Part(
        ("One declaration for both sides", "An index past the end"), ("transpose", "diagnose_count", "K1", "K2")
    ),
    "17b": Part(("The same idea on tensor cores",), ("wide_softmax", "diagnose_rows", "K4", "K5")),
    "20": Part(("When is a device full?",), ("adamw", "enough_images")),
    "20a": Part(
        ("The same step on a GPU", "What do sixteen bits cost?"),
        ("conv_gradient", "nan_origin", "L3"),
        "reads where a step's time goes, and names the operator that made a NaN",
        ("nan_origin",),
    ),
    "21": Part(
        ("Out of memory, for real", "sixteen_bit_gpu"),
        ("step_memory", "diagnose_growth", "L1", "L2"),
        "counts what a training step keeps in memory, part by part",
        ("step_memory", "L1"),
    ),
    "22": Part(
        ("A whole run",),
        ("bigram", "model_of_a_day"),
        "computes from hours and utilisation how large a model a GPU can train",
        ("model_of_a_day",),
    ),
    "22a": Part(("Why so little", "The same step without candle"), ("cross_entropy", "step_cures")),
    "30": Part(("Why the largest score", "What a line must cost"), ("softmax_row", "diagnose_leak", "A1")),
    "31a": Part(("What a causal mask saves", "Which counter asks"), ("one_pass", "tile_loop", "A2")),
    "31b": Part(("The rungs, the chain", "What limits each rung"), ("weigh", "tensor_busy")),
    "40": Part(("A model that answers",), ("decode_step", "token_floor", "A3", "A4")),
    "41": Part(
        ("Uneven grids", "On a GPU: one row"),
        ("scale_search", "quantized_matvec", "four_bit_gain", "A5"),
    ),
    "42": Part(("Which nodes",), ("left_in_f32", "own_graph", "X1", "X2", "X3")),
    "50": Part(
        ("Merged: an adapter", "What a rank is worth"),
        ("lora_forward", "qlora_memory", "diagnose_adapter", "D1", "D2", "D3"),
        "counts what learns and what a step holds for full tuning, LoRA and QLoRA, and names two silent mistakes",
        ("qlora_memory", "D1", "D3"),
    ),
    "51": Part(("Rows of different lengths",), ("spmv_eight", "diagnose_sparse", "A6")),
    "51a": Part(("What does the pattern cost",), ("two_four", "diagnose_places", "A7")),
    "60": Part(
        ("How far does it scale", "Up a tree"), ("ring_all_reduce", "diagnose_parallel", "L4", "L5")
    ),
    "61": Part(
        ("And on real GPUs", "Fetching the next block"),
        ("sharded_step", "fewest_gpus", "Z1", "Z2"),
    ),
    "62": Part(
        ("A live chart", "Memory that is held"), ("hysteresis", "diagnose_slow", "N1", "N2", "N3")
    ),
    "63": Part(
        ("A client that reads slowly",),
        ("scheduler_step", "batch_for_latency", "diagnose_server", "V1", "V2", "V3"),
    ),
    "90": Part(
        ("Prune (lesson 51a)", "Export (lesson 42)"), ("add_layer_norm", "linear4", "C1", "C2", "C3")
    ),
}  # fmt: skip


def number(lesson: Lesson) -> str:
    """`02` of `02_async_timing`."""
    return lesson.name.partition("_")[0]


def unit_lessons(unit: str, lessons: list[Lesson]) -> list[tuple[Lesson, bool]]:
    """The lessons of a unit, and whether each is taken quickly."""
    by_number = {number(lesson): lesson for lesson in lessons}
    return [(by_number[word.rstrip("~")], word.endswith("~")) for word in unit.split()]


def minutes(lesson: Lesson, quick: bool) -> float:
    """What a lesson states for that path."""
    said = reading_times.stated(lesson)
    return (said.quick if quick else said.standard) if said else 0.0


def exercises(lesson: Lesson) -> list[str]:
    """The names of a lesson's exercises."""
    return [cell.metadata["exercise"] for cell in lesson.code if "exercise" in tags(cell)]


def heading(lesson: Lesson, piece: str) -> str:
    """The first heading with this piece, without its number; the piece itself where there is none."""
    cells = (cell for cell in lesson.notebook.cells if cell.cell_type == "markdown")
    found = (one.plain for cell in cells for one in page_rules.headings(cell.source) if piece in one.text)
    return re.sub(r"^\d+(?:\.| ·) ", "", next(found, piece))


def without(lesson: Lesson, pieces: tuple[str, ...]) -> Lesson:
    """The lesson without the parts whose headings have one of these pieces, and without the exercises of that name."""
    kept, dropped = [], False
    for cell in lesson.notebook.cells:
        if cell.cell_type == "markdown" and (headings := page_rules.headings(cell.source)):
            dropped = any(piece in one.text for piece in pieces for one in headings)
        if not dropped and {cell.metadata.get("exercise"), cell.metadata.get("check")}.isdisjoint(pieces):
            kept.append(cell)
    notebook = lesson.notebook.copy()
    notebook["cells"] = kept
    return replace(lesson, notebook=notebook)


def spared(lesson: Lesson, pieces: tuple[str, ...], quick: bool) -> int:
    """The minutes that leaving these out is likely to save."""

    def all_of(one: Lesson) -> float:
        parts = (times for _, times in reading_times.sections(one))
        return sum(times.quick if quick else times.standard for times in parts)

    return round(all_of(lesson) - all_of(without(lesson, pieces)))


def skipped(lesson: Lesson, quick: bool) -> str:
    """What to leave out first, with the minutes saved; on the quick path all exercises that do not show its objective."""
    part, own = PARTS[number(lesson)], exercises(lesson)
    on_path = (cell.metadata.get("exercise") for cell, _, optional in reading_times.walk(lesson) if not optional)
    pieces = tuple(name for name in on_path if name and name not in part.shown_quick) if quick else part.skip
    saves = spared(lesson, pieces, quick)
    if quick and saves < len(pieces) * reading_times.EXERCISE_QUICK:
        return "all exercises, whose time is not counted here"
    said = ", ".join(f"`{piece}`" if piece in own else f"“{heading(lesson, piece)}”" for piece in pieces)
    return f"{said} (about {saves} min)" if pieces else "nothing: it has one exercise"


def shown(lesson: Lesson, quick: bool) -> str:
    """The exercises and exam questions that show the objective."""
    part = PARTS[number(lesson)]
    names, own = part.shown_quick if quick else part.shown, exercises(lesson)
    passed = ", ".join(f"`{name}`" for name in names if name in own)
    asked = ", ".join(name for name in names if name not in own)
    return "; ".join(filter(None, [passed, f"exam {asked}" if asked else ""]))


def objective(lesson: Lesson, quick: bool) -> str:
    """What a learner then can do."""
    said = PARTS[number(lesson)].quick if quick else notes.of(lesson).objective.rstrip(".")
    return re.sub(r"^a learner ", "", said)


def row(unit: str, lesson: Lesson, quick: bool) -> str:
    """One lesson of a course."""
    name = f"{lesson_map.link(lesson)}{' (quick path)' * quick}"
    cells = [f"{minutes(lesson, quick):.0f}", objective(lesson, quick), shown(lesson, quick), skipped(lesson, quick)]
    return f"| {' | '.join([unit, name, *cells])} |"


def head(unit: str) -> list[str]:
    """The head of a course's table."""
    return [
        f"| {unit} | lesson | minutes | a learner then | shown by | leave out first |",
        "| --- | --- | ---: | --- | --- | --- |",
    ]


def table(course: Course, lessons: list[Lesson]) -> str:
    """The rows of a course, and what it leaves out."""
    rows, taken, total = head(course.unit), set(), 0.0
    for at, unit in enumerate(course.units, 1):
        parts = unit_lessons(unit, lessons)
        spent = sum(minutes(one, quick) for one, quick in parts)
        names = [f"{at} ({spent:.0f} min)"] + [""] * (len(parts) - 1)
        rows += [row(name, *part) for name, part in zip(names, parts, strict=True)]
        taken |= {one.name for one, _ in parts}
        total += spent
    out = [number(one) for one in lessons if one.name not in taken]
    left = f"Left out: lessons {', '.join(out)}." if out else "Nothing is left out."
    return "\n".join([*rows, "", f"{reading_times.hours(total)} in all. {left}", ""])


def daily(lessons: list[Lesson]) -> str:
    """All lessons, on the days of the plan in docs/paths.md."""
    by_name = {lesson.name: lesson for lesson in lessons}
    days = DAYS.findall(lesson_map.plan(lessons))
    total = sum(minutes(lesson, quick=False) for lesson in lessons)
    rows = [row(when, by_name[name], quick=False) for name, when in days]
    return "\n".join([*head("days"), *rows, "", f"{reading_times.hours(total)} in all.", ""])


def written(page: str, lessons: list[Lesson]) -> str:
    """The page with its tables as the lessons and their notes have it."""

    def made(match: re.Match[str]) -> str:
        return match[1] + (daily(lessons) if match[2] == DAILY else table(COURSES[match[2]], lessons))

    return MARK.sub(made, page)


def main() -> int:
    """Writes the tables of the page."""
    write(PAGE, written(PAGE.read_text(encoding="utf-8"), [load(path) for path in find()]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
