"""The repository's Markdown pages as pages of the book."""

from __future__ import annotations

import re
from pathlib import Path

from env.book.page import Page
from env.console import ToolError
from env.lint import page_rules
from env.notebooks import ROOT, relative

# In the order of the book's index; a page that is not listed comes behind them.
GUIDES = ["quickstart", "paths", "plain-words", "glossary", "quick-reference", "own_crate", "troubleshooting"]
RECORDS = {
    "results/h200/README.md": "The recorded run",
    "results/h200/recorders.md": "How figures were recorded",
    "results/h200/ladders.md": "All ladders of kernels",
    "results/h200/training.md": "Training, recorded",
    "results/h200/export.md": "Exported models, recorded",
    "results/ncu/README.md": "Counters of the hardware",
    "models/course/README.md": "The trained model",
}
SHORT = {"DESIGN": "How it is built", "README": "About the project"}


def read(path: Path, out: str, group: str, short: str = "", text: str | None = None) -> Page:
    """A Markdown file, or a piece of it, as a page; its links are not resolved yet."""
    text = path.read_text(encoding="utf-8") if text is None else text
    titles = [one.text for one in page_rules.headings(text) if one.level == 1]
    if not titles:
        raise ToolError(f"{relative(path)} has no title", "begin with one `# title`")
    title = re.sub(r"[`*]", "", titles[0])
    page = Page(out, title, short or SHORT.get(path.stem, title.split(":")[0]), [path], group=group)
    page.prose(text)
    return page


def guides() -> list[Page]:
    """What readers open beside a lesson, from docs/."""
    return [read(path, f"docs/{path.stem}.html", "Guides") for path in _docs() if path.stem in GUIDES]


def about() -> list[Page]:
    """The README as a whole, the other pages of docs/, and those that say where recorded figures come from."""
    found = [read(ROOT / "README.md", "about.html", "About")]
    found += [read(path, f"docs/{path.stem}.html", "About") for path in _docs() if path.stem not in GUIDES]
    files = [*(ROOT / "results").glob("*/*.md"), *(ROOT / "models").glob("*/*.md")]
    known = [ROOT / name for name in RECORDS]
    for path in sorted(files, key=lambda path: (known.index(path) if path in known else len(known), path)):
        # What `make run` writes is this machine's, and no part of the course.
        if path.parent.name not in ("run", "hub"):
            out = f"records/{path.parent.name}/{path.stem.lower()}.html"
            found.append(read(path, out, "Records", RECORDS.get(relative(path), "")))
    return found


def _docs() -> list[Path]:
    files = sorted((ROOT / "docs").glob("*.md"))
    return sorted(files, key=lambda path: GUIDES.index(path.stem) if path.stem in GUIDES else len(GUIDES))


def parts(text: str) -> dict[str, str]:
    """A page by its headings of the second level; what comes before the first one is under the empty name."""
    found: dict[str, list[str]] = {"": []}
    name, fenced = "", False
    for line in text.splitlines():
        fenced ^= bool(page_rules.FENCE.match(line))
        if line.startswith("## ") and not fenced:
            name = line[3:].strip()
        found.setdefault(name, []).append(line)
    return {name: "\n".join(lines).strip() for name, lines in found.items()}
