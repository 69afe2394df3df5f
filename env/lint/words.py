"""Words of our own that nobody can look up, where the field has a term: found in prose, comments and texts for readers.

Each rule is a pattern that needs its context, so that ordinary uses pass (`in place`, `by the way`, `turns out`, `a round
number`, `8-way conflict`), and the term to write. Looked at are notebooks (Markdown cells; comments and strings of code
cells), pages, and comments and strings of the sources. Code spans, formulas and links in prose are not.

`words_open.txt` lists the files that are still to be done; it may only become shorter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from env.lint import quantities
from env.lint.notebook_rules import Finding
from env.notebooks import load, relative

OPEN = Path(__file__).with_name("words_open.txt")
COUNT = r"(?:\d+|two|three|four|five|six|seven|eight|nine|ten|sixteen|thirty-two|many|more|fewer|several|extra|all|few)"
# What is counted in one of these: `32 bytes a lane`. Words that are verbs as well (`loads a row`) are not among them.
COUNTED = (
    r"(?:\d|\d %|[kKMGT]i?B|bytes|registers|sectors|operations|elements|floats|values|shuffles|multiply-adds|instructions"
    r"|wavefronts|barriers|scores|threads|warps|lanes|tokens|bits|ns|µs|ms)"
)
EACH = (
    r"(?:thread|block|warp|multiprocessor|SM|element|row|token|head|launch|lane|image|query|key|byte|layer|step|call"
    r"|multiply-add|core|load|float|number|GPU|ride|parameter|score|weight|text|instruction|pass|page|cycle)"
)
VERB = (
    r"(?! (?:has|have|had|holds?|takes?|is|was|must|may|can|needs?|runs?|reads?|writes?|already|keeps|gets|waits?)\b)"
)
# pattern → what to write
PRIVATE = {
    rf"\b{COUNT} turns?\b(?! (?:into|out|off|on)\b)|\bturns? of (?:the )?(?:shared|bank|memory|wave)": (
        "wavefronts (of shared memory), or waves (of blocks)"
    ),
    r"\bin turns\b|\bin turn with\b|\bby turns\b|(?:timed|measured|both|each), in turn\b|\btimed in turn\b": "alternately, or interleaved",
    r"\bplaces for (?:warps|blocks)\b|\b(?:free|empty|blocks'|warps') places\b"
    r"|\bplaces? (?:on|in|of) (?:a|the|each|every|its) (?:multiprocessor|SM)\b": "resident blocks, or resident warps",
    r"\btouch(?:es)? the same place\b|\btwo threads (?:at|in) one place\b": "the same address",
    r"\bways? back\b(?! to\b)|\bboth ways\b(?! (?:to|of)\b)|\bback way\b": (
        "backward pass; forward and backward; both paths; in both directions"
    ),
    rf"\b{COUNT} rounds\b|\b(?:each|every|per|next|last) round\b(?! (?:trip|number))": "iterations, steps or repetitions",
    r"\b[Mm]end(?:s|ed|ing)?\b": "fix, or repair",
    r"\bcame (?:and|or|/) ?went\b|\bwhat (?:came|went) (?:in|out)\b|\bcomes? and goe?s?\b"
    r"|\blines? (?:came|went)\b|\} went\b": "added and removed; loaded and stored; input and output; allocated and freed",
    r"\bnumbers? (?:of|in|per|a) (?:a |each |one |its )?head\b": "head dimension",
    r"\bswitch(?:es|ed)? off the light\b": "what happens, without a metaphor",
    r"\bat home (?:on|in)\b": "resident on",
    r"\bunder way\b": "in flight",
    r"\bkinds? of numbers?\b": "dtype, or data type",
    rf"(?<![\w.]){COUNTED} (?-i:an?) {EACH}\b(?!'){VERB}": "per …, as in `32 bytes per lane`",
    r"\b(?:hold|holds|held|holding) (?:[\w'’]+ ){0,5}against\b": "compare with",
    r"\b(?:a|one|each|every) thread is (?:a|an) (?:cook|diner|rower|guest)\b": "a thread",
}
RULES = [(re.compile(pattern, re.IGNORECASE), term) for pattern, term in PRIVATE.items()]
ANY = re.compile("|".join(f"(?:{pattern})" for pattern in PRIVATE), re.IGNORECASE)

SOURCES = {".rs", ".cu", ".cuh", ".metal"}
# Where the words are named on purpose, and texts that are recorded or learned and not written.
EXEMPT = ("env/lint/", "env/tests/", "results/", "models/", "colab/", "crates/warpsim/tests/")
TEXT = re.compile(r'//[!/]*(?P<comment>[^\n]*)|"(?P<text>(?:[^"\\\n]|\\.)*)"')
TEXT_PY = re.compile(r'(?:^|\s)#(?P<comment>[^\n]*)|"""(?P<doc>.*?)"""|"(?P<text>(?:[^"\\\n]|\\.)*)"', re.DOTALL)


def prose(text: str) -> str:
    """Markdown without code, formulas and links."""
    return quantities.prose(text).replace("\x00", "")


def texts(source: str, python: bool = False) -> Iterator[tuple[int, str]]:
    """Comments and strings of a source with the line on which each begins; comments on lines that follow are joined."""
    line, until, joined, begun = 1, 0, "", 0
    for match in (TEXT_PY if python else TEXT).finditer(source):
        line += source.count("\n", until, match.start())
        between, until = source[until : match.start()], match.start()
        said = next(part for part in match.groups() if part is not None)
        if joined and match.groupdict()["comment"] is not None and not between.partition("\n")[2].strip():
            joined += " " + said.strip()
            continue
        if joined:
            yield begun, joined
        joined, begun = said.strip(), line
        if match.groupdict()["comment"] is None:
            yield begun, joined
            joined = ""
    if joined:
        yield begun, joined


def of_text(text: str) -> Iterator[tuple[str, str, str]]:
    """Each private word of a text: the words, the term to write, and the words around."""
    plain = " ".join(text.split())
    if not ANY.search(plain):
        return
    for pattern, term in RULES:
        for match in pattern.finditer(plain):
            around = plain[max(0, match.start() - 30) : match.end() + 30]
            yield match[0], term, around


def check(path: Path) -> list[Finding]:
    """The private words of one file."""
    places: list[tuple[str, str]] = []
    if path.suffix == ".ipynb":
        for number, cell in enumerate(load(path).notebook.cells, 1):
            where = f"cell {number} (id {cell.get('id', 'none')})"
            parts = [prose(cell.source)] if cell.cell_type == "markdown" else [text for _, text in texts(cell.source)]
            places += [(where, part) for part in parts]
    else:
        source = path.read_text(encoding="utf-8")
        if path.suffix == ".md":
            paragraphs = re.finditer(r"(?:[^\n]+\n?)+", prose(source))
            at = prose(source)
            places = [(f"line {at.count(chr(10), 0, one.start()) + 1}", one[0]) for one in paragraphs]
        else:
            places = [(f"line {line}", text) for line, text in texts(source, path.suffix == ".py")]
    return [
        Finding(path, where, f"`{word}` is a word of our own (… {around} …)", f"write {term}")
        for where, text in places
        for word, term, around in of_text(text)
    ]


def files(everything: Iterable[Path]) -> list[Path]:
    """What is looked at: notebooks, pages and sources."""
    kinds = SOURCES | {".ipynb", ".md", ".py"}
    return [path for path in everything if path.suffix in kinds and not relative(path).startswith(EXEMPT)]


@cache
def _found(path: Path, _changed: int) -> tuple[Finding, ...]:
    return tuple(check(path))


def findings(everything: Iterable[Path]) -> dict[str, list[Finding]]:
    """All findings by file, the list of open ones aside."""
    return {relative(path): list(_found(path, path.stat().st_mtime_ns)) for path in files(everything)}


def still_open(file: Path = OPEN) -> list[str]:
    """The files that are still to be done."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def listed(found: dict[str, list[Finding]], undone: list[str], file: Path = OPEN) -> list[Finding]:
    """What fails: findings of what is not on the list, and names on the list that have none or do not exist."""
    findings = [one for name, ones in found.items() if name not in undone for one in ones]
    for name in undone:
        if name not in found:
            findings.append(Finding(file, "", f"`{name}` is none of the files", "take it off the list"))
        elif not found[name]:
            findings.append(Finding(file, "", f"`{name}` has no finding any more", "take it off the list"))
        if undone.count(name) > 1:
            findings.append(Finding(file, "", f"`{name}` stands there twice", "take one off the list"))
    return findings
