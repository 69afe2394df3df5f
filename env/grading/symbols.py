"""Which names a Rust cell defines and which it uses, read from its text: enough to say which cells an exercise needs.

No compiler is asked: a name too many brings one cell too many into an assignment, and a missing one is seen when the
assignment is tried with the course's solutions (`make assignment` does that on request, and the tests for lesson 10).
"""

from __future__ import annotations

import re
from functools import lru_cache

LITERAL = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(?P<hashes>\#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"|'(?:\\.[^']*|[^'\\])'""",
    re.DOTALL | re.VERBOSE,
)
# `{name}` and `{name:>5}` in a text that is printed.
CAPTURED = re.compile(r"\{([a-z_]\w*)(?::[^{}]*)?\}")
ITEM = re.compile(
    r"\b(?:const|static|fn|struct|enum|type|trait|mod|union)\s+(?:mut\s+)?([A-Za-z_]\w*)|\bmacro_rules!\s*(\w+)"
)
USE = re.compile(r"\buse\s+([^;]+);")
LET = re.compile(r"\blet\s+(.*?)(?=[:=;](?!:))", re.DOTALL)
IMPL = re.compile(r"\bimpl\b(?:\s*<[^{]*?>)?\s+(?:[\w:<>,\s&']+?\s+for\s+)?([A-Za-z_]\w*)")
WORD = re.compile(r"(?<![\w.])(?:r#)?([A-Za-z_]\w*)|(?<=\.\.)([A-Za-z_]\w*)")
DEP = re.compile(r"^\s*:dep.*$", re.MULTILINE)


def without_literals(source: str) -> str:
    """The code without comments, and each literal as two quotes."""

    def replaced(found: re.Match[str]) -> str:
        text = found[0]
        return " " if text.startswith(("//", "/*")) else '""'

    return LITERAL.sub(replaced, DEP.sub("", source))


def top_level(code: str) -> str:
    """What stands outside all braces. A block's inside leaves a blank; brackets and parentheses stay."""
    kept, depth = [], 0
    for sign in code:
        depth -= sign == "}"
        if depth <= 0 and sign not in "{}":
            kept.append(sign)
        elif sign in "{}":
            kept.append(" ; " if sign == "}" and depth == 0 else " ")
        depth += sign == "{"
    return "".join(kept)


@lru_cache(maxsize=4096)
def defined(source: str) -> frozenset[str]:
    """The names that stay when the cell has run."""
    code = without_literals(source)
    found: set[str] = set()
    for path in USE.findall(code):
        found |= {word for word in re.findall(r"(\w+)\s*(?=[,}]|$)", path) if word not in ("self", "prelude")}
    outside = top_level(USE.sub("", code))
    found |= {one or other for one, other in ITEM.findall(outside)}
    for pattern in LET.findall(outside):
        found |= {word for word in re.findall(r"[a-z_]\w*", pattern) if word not in ("mut", "ref", "_")}
    return frozenset(found)


@lru_cache(maxsize=4096)
def extended(source: str) -> frozenset[str]:
    """The types that the cell gives methods or traits to: whoever needs them needs the cell."""
    return frozenset(IMPL.findall(top_level(without_literals(source))))


@lru_cache(maxsize=4096)
def used(source: str) -> frozenset[str]:
    """The names that it mentions, its own among them."""
    found = {one or other for one, other in WORD.findall(without_literals(source))}
    for literal in LITERAL.finditer(source):
        found |= set(CAPTURED.findall(literal[0]))
    return frozenset(found)
