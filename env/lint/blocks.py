"""The fenced code of pages: what is run by the tests, what another step proves, and what is not run, and why.

A block of `sh` is run as it stands, unless the line above it says otherwise: `<!-- tested by: notebooks -->` names a step
of `make test` that runs the same, `<!-- runs until: (answers|runs already) -->` ends it when its output says so, and
`*Not run by the tests: needs Docker.*` tells the reader too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^\s*(```|~~~)\s*(\S*)")
ELSEWHERE = re.compile(r"^<!-- tested by: ([a-z ]+) -->$")
UNTIL = re.compile(r"^<!-- runs until: (.+) -->$")
NOT_RUN = re.compile(r"^\*Not run by the tests: (.+)\.\*$")
# `cuda` and `rust` are compiled and run by crates/kernels/tests/pages.rs, on the pages that it names; a crate's README also by rustdoc.
LANGUAGES = {"sh": "run", "cuda": "rust tests", "rust": "rust tests", "text": "", "json": "", "yaml": "", "toml": ""}


@dataclass
class Block:
    """A fenced block: where, its language, its text, and what the line above says about testing it."""

    page: Path
    line: int
    language: str
    text: str
    by: str = ""
    until: str = ""
    reason: str = ""

    @property
    def is_run(self) -> bool:
        """Whether the tests run it as it stands."""
        return self.language == "sh" and not self.by and not self.reason

    @property
    def commands(self) -> list[str]:
        """Its commands, one a line, without comments and with continued lines joined."""
        lines = re.sub(r"\s*\\\n\s*", " ", self.text).splitlines()
        plain = (re.sub(r"(?:^|\s)#.*$", "", line).strip() for line in lines)
        return [line for line in plain if line]


def blocks(page: Path, text: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found: list[Block] = []
    current: Block | None = None
    above = ""
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if fence and current is None:
            current = Block(page, number, fence[2], "")
            if match := ELSEWHERE.match(above.strip()):
                current.by = match[1]
            if match := UNTIL.match(above.strip()):
                current.until = match[1]
            if match := NOT_RUN.match(above.strip()):
                current.reason = match[1]
            found.append(current)
        elif fence:
            current, above = None, ""
        elif current is not None:
            current.text += line + "\n"
        elif line.strip():
            above = line
    return found


def wrong(block: Block, steps: set[str], outside: set[str], proven: set[Path]) -> Iterator[tuple[str, str]]:
    """What is wrong with how a block is marked, each with what to do; `outside` are programs that tests do not have."""
    if block.language not in LANGUAGES:
        said = f"`{block.language}`" if block.language else "no language"
        yield f"a block has {said}", f"name one of {', '.join(LANGUAGES)}"
    if block.by and block.by not in steps:
        yield f"`{block.by}` is no step of make test", f"name one of {', '.join(sorted(steps))}"
    if LANGUAGES.get(block.language) == "rust tests" and block.page not in proven:
        yield f"a block of `{block.language}` that nobody compiles", "add the page to crates/kernels/tests/pages.rs"
    missing = sorted({first_word(command) for command in block.commands} & outside) if block.is_run else []
    if missing:
        step = f"write above it, on a line of its own: *Not run by the tests: needs {missing[0]}.*"
        yield f"a block needs `{missing[0]}`, which tests do not have, and does not say so", step


def first_word(command: str) -> str:
    """The program of a command, without variables set for it and without sudo."""
    return next((word for word in command.split() if word != "sudo" and not re.match(r"^[A-Z_]+=", word)), "")
