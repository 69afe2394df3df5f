"""Source code in colours: Rust with the CUDA C inside its strings, and whatever else pages show."""

from __future__ import annotations

import re
from html import escape
from typing import ClassVar

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer, bygroups, using
from pygments.lexers import CudaLexer, RustLexer, get_lexer_by_name, get_lexer_for_filename
from pygments.token import String
from pygments.util import ClassNotFound

KERNEL = r"__global__|__device__|__kernel|threadIdx"


class RustWithKernels(RustLexer):
    """Rust, whose raw strings with a kernel in them have the colours of CUDA C: they are most of what a lesson is about."""

    name = "Rust with CUDA C"
    tokens: ClassVar = {
        **RustLexer.tokens,
        "base": [
            (
                rf'(r#")((?:(?!"#)[\s\S])*?(?:{KERNEL})(?:(?!"#)[\s\S])*)("#)',
                bygroups(String, using(CudaLexer), String),
            ),
            *RustLexer.tokens["base"],
        ],
    }


def _lexer(language: str) -> Lexer | None:
    if language in ("rust", "rs"):
        return RustWithKernels()
    # Apple's language is C++ with attributes.
    try:
        return get_lexer_by_name({"metal": "cpp", "text": "text"}.get(language, language)) if language else None
    except ClassNotFound:
        return None


# Spans alone: what stands around them is the caller's.
SPANS = HtmlFormatter(nowrap=True)


def coloured(source: str, language: str) -> str:
    """The spans of a piece of code, without anything around them; escaped text for a language that is not known."""
    lexer = _lexer(language)
    if lexer is None:
        return escape(source, quote=False)
    lexer.stripnl = False
    return highlight(source, lexer, SPANS).rstrip("\n")


def block(source: str, language: str) -> str:
    """A piece of code as a box of its own."""
    # To be reached by the keyboard: a box that scrolls is else closed to who has no mouse.
    return f'<pre class="code" tabindex="0"><code>{coloured(source, language)}</code></pre>'


def file_block(source: str, name: str) -> str:
    """A whole file, with line numbers that can be linked to: `#L12`."""
    try:
        lexer = RustLexer() if name.endswith(".rs") else get_lexer_for_filename(name.replace(".metal", ".cpp"))
    except ClassNotFound:
        lexer = get_lexer_by_name("text")
    lexer.stripnl = False
    lines = re.sub(r"\n$", "", highlight(source, lexer, SPANS)).split("\n")
    rows = (
        f'<span class="line" id="L{at}"><a href="#L{at}">{at}</a>{line}\n</span>' for at, line in enumerate(lines, 1)
    )
    width = len(str(len(lines)))
    return f'<pre class="code file" tabindex="0" style="--digits:{width}ch"><code>{"".join(rows)}</code></pre>'
