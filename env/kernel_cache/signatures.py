"""Rust source as the type analysis needs it: what functions take and give, without what they do.

Bodies of functions become an endless loop, which has every type; comments go, and of documentation the first paragraph
stays, for Shift-Tab. `const fn` keeps its body, since a length such as `[f32; N]` may come from it, and so do macros, since
functions may be made in them; `whole` takes these, too, but for what lengths are computed with. Attributes that say nothing
of types go. `stable` is none of them: without it the analysis takes more than twice as long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Token = tuple[str, str]
TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<comment>//[^\n]*)
    |(?P<block>/\*)
    |(?P<raw>(?:br|cr|r)(?P<hashes>\#*)")
    |(?P<string>[bc]?"(?:[^"\\]|\\.)*")
    |(?P<char>b?'(?:[^'\\\n]|\\u\{[0-9a-fA-F_]+\}|\\x[0-9a-fA-F]{2}|\\.)')
    |(?P<lifetime>'[A-Za-z_]\w*)
    |(?P<word>(?:r\#)?[A-Za-z_]\w*)
    |(?P<number>\d\w*)
    |(?P<open>[({\[])
    |(?P<close>[)}\]])
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
BLOCK = re.compile(r"/\*|\*/")
NO_CODE = {"space", "comment"}
# Attributes for lints, for machine code, and for what std itself may call in a `const fn`.
NO_TYPES = {"allow", "deny", "expect", "inline", "must_use", "track_caller", "warn"}
NO_TYPES |= {f"rustc_{name}" for name in ("const_stable", "const_unstable", "diagnostic_item", "on_unimplemented")}
NO_TYPES |= {"rustc_allow_const_fn_unstable", "rustc_inherit_overflow_checks"}
# What a length may be computed with, as in `[f32; N.div_ceil(32)]`.
OF_LENGTHS = {"abs_diff", "div_ceil", "ilog2", "is_power_of_two", "isqrt", "next_multiple_of", "pow"}
OF_LENGTHS |= {"next_power_of_two", "checked_next_power_of_two", "one_less_than_next_power_of_two"}
# What may stand between `const` and `fn`.
QUALIFIERS = {"unsafe", "extern", "async", "safe"}


def tokens(source: str) -> Iterator[Token]:
    """Kind and text of each; the texts together are the source. `ValueError` where a raw string or a comment has no end."""
    at = 0
    while at < len(source):
        match = TOKEN.match(source, at)
        assert match is not None
        kind, end = match.lastgroup or "", match.end()
        if match["raw"]:
            kind, end = "raw", source.index('"' + match["hashes"], end) + 1 + len(match["hashes"])
        elif kind == "block":
            depth = 1
            while depth:
                mark = BLOCK.search(source, end)
                if mark is None:
                    raise ValueError("a comment without an end")
                depth, end = depth + (1 if mark[0] == "/*" else -1), mark.end()
        yield kind, source[at:end]
        at = end


def signatures(source: str, whole: bool = False) -> str:
    """The source without bodies and comments; as it is where it cannot be read. `whole`: macros and `const fn`, too."""
    try:
        return "".join(_short(_without_attributes(list(_without_comments(source))), whole))
    except (ValueError, IndexError):
        return source


def _without_comments(source: str) -> Iterator[Token]:
    paragraphs, last = 0, ""
    for kind, text in tokens(source):
        if kind == "comment":
            if not re.match(r"///(?!/)|//!", text):
                continue
            paragraphs += not text[3:].strip()
            if paragraphs:
                continue
        elif kind in ("space", "block"):
            kind, text = "space", "\n" if "\n" in text and kind == "space" else " "
            if last == "\n" or last == text:
                continue
        else:
            paragraphs = 0
        last = text
        yield kind, text


def _without_attributes(found: list[Token]) -> list[Token]:
    kept, at = [], 0
    while at < len(found):
        if found[at][1] == "#" and found[at + 1][1] == "[":
            name = _code(found, at + 2)
            # `doc(hidden)` stays, documentation that is put together goes.
            if found[name][1] in NO_TYPES or (found[name][1] == "doc" and found[_code(found, name + 1)][1] == "="):
                at = _closing(found, at + 1) + 1
                continue
        kept.append(found[at])
        at += 1
    return kept


def _short(found: list[Token], whole: bool) -> Iterator[str]:
    at, constant = 0, False
    while at < len(found):
        kind, text = found[at]
        if text == "macro_rules" and not whole:
            end = _macro_end(found, at)
            yield from (text for _, text in found[at:end])
            at = end
            continue
        if text == "fn":
            body = _body(found, at)
            if body and (found[_code(found, at + 1)][1] not in OF_LENGTHS if whole else not constant):
                yield from (text for _, text in found[at:body])
                yield "{loop{}}"
                at = _closing(found, body) + 1
                continue
        if kind not in NO_CODE:
            constant = text == "const" or (constant and (text in QUALIFIERS or kind == "string"))
        yield text
        at += 1


def _body(found: list[Token], at: int) -> int:
    """Where the body of the function that begins here begins; 0 where it is a type, a declaration, or a macro's."""
    at = _code(found, at + 1)
    if found[at][0] != "word":
        return 0
    while at < len(found):
        kind, text = found[at]
        if text == "{":
            return at
        if text == ";" or kind == "close":
            return 0
        at = _closing(found, at) + 1 if kind == "open" else at + 1
    return 0


def _macro_end(found: list[Token], at: int) -> int:
    """Behind the rules of the macro that is defined here."""
    while found[at][0] != "open":
        at = _code(found, at + 1)
    return _closing(found, at) + 1


def _code(found: list[Token], at: int) -> int:
    """The next token that is neither space nor comment."""
    while found[at][0] in NO_CODE:
        at += 1
    return at


def _closing(found: list[Token], at: int) -> int:
    """The bracket that closes the one here."""
    depth = 0
    while True:
        depth += {"open": 1, "close": -1}.get(found[at][0], 0)
        if depth == 0:
            return at
        at += 1
