"""Gather the course's own prose into the text that the small GPT learns: models/course/text.txt.

From the notebooks' pages, the documents, and what the crates and kernels say about themselves. Run it when a new model is
to be trained; the file then stays as it is, since a loss means something only beside the text that it was measured on.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from env import paths

TEXT = paths.ROOT / "models" / "course" / "text.txt"
PAGES = ("README.md", "docs/*.md", "results/*/README.md")
SOURCES = tuple(f"{crate}/{folder}/**/*.rs" for folder in ("src", "tests") for crate in ("support-crate", "crates/*"))
KERNELS = ("crates/kernels/**/*.cu",)
# Shorter ones are captions and single words.
SHORTEST = 60


def main() -> int:
    paragraphs = list(dict.fromkeys(plain for raw in everything() if (plain := clean(raw))))
    TEXT.parent.mkdir(parents=True, exist_ok=True)
    TEXT.write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
    print(f"{TEXT.relative_to(paths.ROOT)}: {len(paragraphs)} paragraphs, {TEXT.stat().st_size} bytes")
    return 0


def everything():
    """All paragraphs, in the order in which a reader meets them."""
    for notebook in found(("notebooks/*.ipynb",)):
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                yield from re.split(r"\n\s*\n", "".join(cell["source"]))
    for page in found(PAGES):
        yield from re.split(r"\n\s*\n", page.read_text(encoding="utf-8"))
    for source in found(SOURCES):
        yield from comments(source, r"\s*//[/!] ?")
    for kernel in found(KERNELS):
        yield from comments(kernel, r"\s*// ?")


def found(patterns: tuple[str, ...]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(paths.ROOT.glob(pattern))]


def comments(path: Path, mark: str):
    """Neighbouring comment lines of a source make a paragraph."""
    lines: list[str] = []
    for line in [*path.read_text(encoding="utf-8").splitlines(), ""]:
        words = re.match(mark, line)
        if words and line[words.end() :].strip():
            lines.append(line[words.end() :])
        elif lines:
            yield "\n".join(lines)
            lines = []


def clean(paragraph: str) -> str:
    """One line of prose without tables, code, links and marks; empty when too little is left."""
    if "```" in paragraph:
        return ""
    lines = [line for line in paragraph.splitlines() if not re.match(r"\s*[|#]|\s*<", line)]
    text = " ".join(line.strip().removeprefix("> ").removeprefix("- ") for line in lines)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"https?://\S+|[`]|\*\*", "", text)
    text = re.sub(r"(?<!\w)\*(\S|\S[^*]*\S)\*(?!\w)", r"\1", text)
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) >= SHORTEST else ""


if __name__ == "__main__":
    sys.exit(main())
