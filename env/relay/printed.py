"""One running cell's printed text: cut where it would freeze the page, panics told in a few lines."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from pathlib import Path

LINES, CHARACTERS = 2_000, 1_000_000
# Of what was cut, the last lines are shown after all: mostly they hold the result.
LAST = 10
WIDEST = 300
PANICKED = re.compile(r"thread '.*' (?:\(\d+\) )?panicked at (.+):(\d+):(\d+):$")
BACKTRACE_END = "note: Some details are omitted"
FRAME = re.compile(r"\s+(\d+: |at )")
CRASHED = ("Segmentation fault.", "Illegal instruction.", "Bus error.")
# `?` at a line's end, or before what may follow it.
ASKS = re.compile(r"\?\s*(?:[;.,)\]}?]|$)")
COMMENT = re.compile(r"^\s*//|^\s*:|^!")
PRINTS = re.compile(r"\beprint(?:ln)?!|\bdbg!")


class Text:
    """What a cell prints to one stream, up to a limit; behind it, lines are counted."""

    def __init__(self, lines: int = LINES, characters: int = CHARACTERS) -> None:
        self.lines, self.characters = lines, characters
        self.more = 0
        self.last: deque[str] = deque(maxlen=LAST)

    def add(self, text: str) -> str:
        """The part of it that is shown."""
        if self.lines > 0 and self.characters > 0:
            self.lines -= text.count("\n")
            shown = text[: self.characters]
            self.characters -= len(text)
            return shown if len(shown) == len(text) else f"{shown} … (the line goes on)\n"
        self.more += text.count("\n")
        self.last.append(text[:WIDEST].rstrip("\n"))
        return ""

    def note(self, done: bool) -> str:
        """What stands below the text that was cut."""
        shown = self.last if done else ()
        hidden = self.more - len(shown)
        count = f"… {hidden:,} more line{'s' * (hidden != 1)}" if hidden > 0 else ""
        return "\n".join([*filter(None, [count]), *shown])


def code_lines(code: str) -> list[str]:
    """A cell's lines, without those that are comments or evcxr's commands."""
    return ["" if COMMENT.search(line) else line.split(" //")[0] for line in code.splitlines()]


def cell_line(code: str, line: str) -> str:
    """`line 3 of this cell: …`, where the cell has this statement once."""
    wanted = line.strip()
    found = [number for number, one in enumerate(code.splitlines(), 1) if wanted in one]
    return f"line {found[0]} of this cell: `{wanted}`" if wanted and len(found) == 1 else ""


class Errors:
    """A cell's stderr: a panic without evcxr's backtrace, with the cell's line, and with what to do next."""

    def __init__(self, code: str, source: Callable[[], Path], backtrace: bool) -> None:
        self.code, self.source, self.backtrace = code, source, backtrace
        self.panicked = self.crashed = False
        self.seen: list[str] = []
        self.skipping = False
        # Empty lines that stand before the next one: a panic of a cell begins with one.
        self.blank = ""

    def line(self, line: str) -> str:
        """What is shown of one line."""
        text = line.rstrip("\n")
        if len(self.seen) < LINES:
            self.seen.append(text)
        if self.backtrace:
            return line
        if self.skipping:
            if text.startswith(BACKTRACE_END):
                self.skipping = False
                return ""
            if not text or FRAME.match(text):
                return ""
            self.skipping = False
        blank, self.blank = self.blank, ""
        match = PANICKED.match(text)
        if match:
            self.panicked = True
            return f"panicked at {self.where(match[1], int(match[2]))}:\n"
        if self.panicked and text == "stack backtrace:":
            self.skipping = True
            return ""
        if text in CRASHED:
            self.crashed = self.skipping = True
        if not text:
            self.blank = f"{blank}\n"
            return ""
        return blank + line

    def where(self, file: str, number: int) -> str:
        """The cell's own line, where the place is in a cell; else file and line."""
        if file != "src/lib.rs":
            return f"{file.split('/registry/src/')[-1]}, line {number}"
        try:
            line = self.source().read_text(encoding="utf-8").splitlines()[number - 1]
        except (OSError, IndexError):
            return "a line of this notebook"
        return cell_line(self.code, line) or f"a line of an earlier cell: `{line.strip()}`"

    def next_step(self, failed: bool) -> str:
        """What is said below the text, when the cell is done; nothing where the text itself says it."""
        text = "\n".join(self.seen)
        if not text.strip() or "next: " in text:
            return ""
        if self.panicked:
            return "next: change that line, or what it is given, and run the cell again; what it made, or took over by moving, is gone\n"
        if failed or self.crashed or PRINTS.search(self.code):
            return ""
        lines = [number for number, line in enumerate(code_lines(self.code), 1) if ASKS.search(line)]
        if not lines:
            return ""
        one = len(lines) == 1
        place = f"line {lines[0]}" if one else f"one of the lines {', '.join(map(str, lines))}"
        return (
            f"next: `?` ended the cell at {place}: change what that call is given, or handle its error with `match`\n"
        )


GREY = re.compile(r"\x1b\[38;5;(?:24\d|25\d)m")
COLOUR = re.compile(r"\x1b\[(?:38;5;\d+|3[1-7]|9[0-7])m")
# evcxr colours letter by letter.
RUN = re.compile(r"\x1b\[0m\x1b\[1m")


def readable(trace: list[str]) -> list[str]:
    """rustc's text in the page's own colour: evcxr's greys and dark blues are hard to read on a light or a dark page.

    Bold takes the place of colour.
    """
    lines = []
    for line in trace:
        plain = re.sub(GREY.pattern + r"(.*?)\x1b\[0m", r"\1", line)
        lines.append(RUN.sub("", COLOUR.sub("\x1b[1m", plain)))
    return lines
