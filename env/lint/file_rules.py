"""The rules for files other than notebooks: pages and their links, solutions, words."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from env.lint import blocks, page_rules, reading_times, typed_commands
from env.lint.notebook_rules import Finding, minutes
from env.notebooks import FOLDER, ROOT, Lesson, load

RECORDED = "h200"
STEPS = ROOT / "env" / "ci" / "steps.py"
# The test that compiles and runs the CUDA C and Rust of the pages that it names.
PROVEN = ROOT / "crates" / "kernels" / "tests" / "pages.rs"
ON_GPU = re.compile(r'on_gpu\(\s*"([^"]+)"')
# Steps that were written after the recorded run.
UNRECORDED = Path(__file__).with_name("unrecorded_open.txt")
TEXT = {".rs", ".py", ".md", ".toml", ".cu", ".metal", ".ipynb", ".sh", ".csv", ".svg", ".html", ".json", ".txt", ""}
UNFINISHED = "unfinished work"
# What belongs to one person's machine or to unfinished work. Written so that this file does not match itself.
WORDS = {
    r"(?<![\w.])/(?:ro[o]t|wor[k]|hom[e]/\w+|User[s]/\w+)(?=[/\s\"'`),:]|$)": "a path of one machine",
    # What a lesson puts aside and takes away again is named by its errors, which are the lesson's outputs.
    r"(?<![\w.])/tm[p]/(?!lesson-\d)": "a path of one machine",
    r"\b[Ii]ssue #?\d": "the number of an issue",
    r"\b(?:Cl[a]ude|Anthr[o]pic|Chat[G]PT|Copi[l]ot)\b": "a tool of the author's workplace",
    r"\b(?:TO[D]O|FIX[M]E)\b|\bunimplemente[d]!": UNFINISHED,
}


def files() -> list[Path]:
    """What belongs to the repository: tracked, or new and not ignored. Without git, nothing can be said."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [ROOT / line for line in sorted(set(done.stdout.splitlines())) if (ROOT / line).is_file()]


def check(lessons: list[Lesson], everything: list[Path]) -> list[Finding]:
    """All findings outside the notebooks' own rules."""
    found = [
        *_pages(everything),
        *_readme(lessons),
        *_times(lessons),
        *_recorded(lessons),
        *_solutions(lessons),
    ]
    return found + [finding for path in everything for finding in _words(path)]


def _pages(everything: list[Path]) -> Iterator[Finding]:
    for page in (path for path in everything if path.suffix == ".md"):
        text = page.read_text(encoding="utf-8")
        own = page_rules.headings(text)
        yield from typed(page)
        if [one.level for one in own[:1]] != [1] or sum(one.level == 1 for one in own) != 1:
            yield Finding(page, "", "does not start with its only title", "begin with one `# title`")
        for target in page_rules.links(text):
            wrong = page_rules.broken(target, page, own)
            if wrong:
                yield Finding(page, "", f"links to `{target}`: {wrong}", "fix the link")


def typed(page: Path) -> Iterator[Finding]:
    """What a page tells the reader to type: each block says how it is tested, and what is named exists."""
    text = page.read_text(encoding="utf-8")
    steps = set(re.findall(r"^def ([a-z_]+)\(commands: Commands\)", STEPS.read_text("utf-8"), flags=re.MULTILINE))
    proven = (
        {ROOT / name for name in re.findall(r"docs/[\w-]+\.md", PROVEN.read_text("utf-8"))}
        if PROVEN.exists()
        else set()
    )
    # A crate's README that its library takes as documentation: its code is a documentation test.
    library = page.parent / "src" / "lib.rs"
    if page.name == "README.md" and library.exists() and 'include_str!("../README.md")' in library.read_text("utf-8"):
        proven.add(page)
    for block in blocks.blocks(page, text):
        named = {step.replace("_", " ") for step in steps}
        for what, step in blocks.wrong(block, named, typed_commands.OUTSIDE, proven):
            yield Finding(page, f"line {block.line}", what, step)
        for command in block.commands if block.language == "sh" else []:
            if problem := typed_commands.wrong(command):
                yield Finding(page, f"line {block.line}", f"`{command}`: {problem}", "fix the command")
    # A record keeps the command of its own commit.
    recorded = page.is_relative_to(ROOT / "results")
    for command in [] if recorded else typed_commands.spans(text):
        if problem := typed_commands.wrong(command):
            yield Finding(page, "", f"`{command}`: {problem}", "fix the command")


def _readme(lessons: list[Lesson]) -> Iterator[Finding]:
    """The table of modules lists exactly the notebooks, with the minutes that they state."""
    readme = ROOT / "README.md"
    rows = (
        [line for line in page_rules.prose(readme.read_text("utf-8")) if line.startswith("|")]
        if readme.exists()
        else []
    )
    listed: dict[str, list[str]] = {}
    for row in rows:
        for name in re.findall(r"\]\(notebooks/([\w-]+)\.ipynb\)", row):
            listed.setdefault(name, []).append(row)
    names = {lesson.name for lesson in lessons}
    for name in sorted(names ^ set(listed)):
        there = "is not in README.md's table" if name in names else "is in README.md's table, but there is none"
        yield Finding(readme, "", f"notebook {name} {there}", "give each notebook one row, with a link to it")
    for lesson in lessons:
        here = listed.get(lesson.name, [])
        if len(here) > 1:
            yield Finding(readme, "", f"notebook {lesson.name} has {len(here)} rows", "keep one")
        waits = (
            here
            and "not recorded yet" in here[0]
            and not (ROOT / "results" / RECORDED / f"{lesson.name}.ipynb").exists()
        )
        if here and not waits and not re.search(rf"\]\(results/[\w-]+/{lesson.name}\.ipynb\)", here[0]):
            step = "link the copy of the recorded run, results/h200/…, in its row"
            yield Finding(readme, "", f"the row of {lesson.name} has no link to an executed copy", step)
        stated = minutes(lesson)
        if here and stated is not None and not re.search(rf"(?<!\d){stated}(?!\d)", re.sub(r"\([^)]*\)", "", here[0])):
            yield Finding(readme, "", f"{lesson.name} states {stated} minutes, its row does not", "make them equal")


def _times(lessons: list[Lesson]) -> Iterator[Finding]:
    """Each lesson's minutes fit what it holds, and README's table of the two paths has their sums."""
    readme, step = ROOT / "README.md", "python3 -m env.lint.minutes --write"
    for lesson in lessons:
        if problem := reading_times.wrong(lesson):
            says = reading_times.estimate(lesson)
            yield Finding(lesson.path, "cell 1", problem, f"write `{says}` there, then {step}")
    lines = readme.read_text("utf-8").splitlines() if readme.exists() else []
    for row in reading_times.table(lessons):
        if row not in lines:
            yield Finding(readme, "", f"its table of the two paths lacks the row `{row}`", step)


def unrecorded(lessons: list[Lesson]) -> dict[str, list[Finding]]:
    """Each step with `on_gpu("title", …)` that printed nothing in the recorded run, as `lesson: title`."""
    found: dict[str, list[Finding]] = {}
    step = f"record again on the GPU machine: python3 -m env.run --out results/{RECORDED}"
    for lesson in lessons:
        copy = ROOT / "results" / RECORDED / f"{lesson.name}.ipynb"
        cells = load(copy).code if copy.exists() else []
        for title in (title for cell in lesson.code for title in ON_GPU.findall(cell.source)):
            mine = [cell for cell in cells if title in ON_GPU.findall(cell.source)]
            if not any(
                output.output_type == "stream" and output.text.strip() for cell in mine for output in cell.outputs
            ):
                what = f'holds nothing printed by on_gpu("{title}", …) of {lesson.name}'
                found.setdefault(f"{lesson.name}: {title}", []).append(Finding(copy, "", what, step))
    return found


def _recorded(lessons: list[Lesson]) -> Iterator[Finding]:
    """What a lesson shows without a GPU is in the recorded run, but for the steps that are listed as waiting for one."""
    found = unrecorded(lessons)
    waiting = [line for line in UNRECORDED.read_text("utf-8").splitlines() if not line.startswith("#")]
    for name, findings in found.items():
        if name not in waiting:
            yield from findings
    for name in waiting:
        if name not in found:
            yield Finding(UNRECORDED, "", f"`{name}` is recorded, or gone", "take it off the list")


def _solutions(lessons: list[Lesson]) -> Iterator[Finding]:
    names = {lesson.name for lesson in lessons}
    for path in sorted((FOLDER / "solutions").glob("*")):
        if path.suffix != ".rs" or path.stem not in names:
            yield Finding(path, "", "solves no notebook", "name it after its notebook, or remove it")


def _words(path: Path) -> Iterator[Finding]:
    if path.suffix not in TEXT or path.name == "Cargo.lock":
        return
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return
    # A container has paths of its own.
    words = {} if path.name.startswith("Dockerfile") else WORDS
    for number, line in enumerate(lines, 1):
        for pattern, what in words.items():
            # An exercise may well say so to its reader.
            match = re.search(pattern, line) if (path.suffix, what) != (".ipynb", UNFINISHED) else None
            if match:
                yield Finding(path, f"line {number}", f"holds {what}: `{match[0]}`", "say it without")
