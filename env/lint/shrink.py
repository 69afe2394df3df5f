"""Takes off the lists of open notebooks and pages what has no finding any more; nothing is ever added to them."""

from __future__ import annotations

from pathlib import Path

from env import in_venv
from env.console import tool
from env.paths import write_text


def shrunk(text: str, found: dict[str, list]) -> str:
    """A list without names that have no finding, that do not exist, or that stand there twice; comments stay."""
    kept: list[str] = []
    for line in text.splitlines():
        name = line.strip()
        if line.startswith("#") or (found.get(name) and name not in kept):
            kept.append(line if line.startswith("#") else name)
    return "\n".join(kept) + "\n"


def main() -> int:
    """Rewrites the lists, and says what went off each."""
    from env.lint import figures, file_rules, glossary, names, words
    from env.notebooks import find, load

    lessons = [load(path) for path in find()]
    page = glossary.PAGE.read_text(encoding="utf-8")
    lists: dict[Path, dict[str, list]] = {
        figures.OPEN: figures.everything(lessons),
        words.OPEN: words.findings(file_rules.files()),
        glossary.OPEN: glossary.everything(lessons, page),
        names.OPEN: names.everything(lessons),
        file_rules.UNRECORDED: file_rules.unrecorded(lessons),
    }
    for file, found in lists.items():
        before = file.read_text(encoding="utf-8")
        after = shrunk(before, found)
        write_text(file, after)
        left = sum(not line.startswith("#") for line in after.splitlines())
        print(f"{file.name}: {len(before.splitlines()) - len(after.splitlines())} taken off, {left} left")
    return 0


if __name__ == "__main__":
    in_venv.enter(set_up=False)
    tool(main)
