"""`make corpus`: a text to train a language model on, gathered from the documentation that this Debian system has installed.

Everything in Debian's main section may be used, changed and passed on; each package says under which licence. Taken are the
English manual pages, and the text and HTML pages in /usr/share/doc, of packages whose copyright file is machine-readable
(https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/), so that `sources.csv` can name the licences of each. Other
documentation packages (rust-doc, python3-doc, manpages-dev, …) make it larger: install them first.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import re
import shlex
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from env import paths
from env.console import ToolError, tool

FOLDER = paths.ROOT / "data" / "corpus"
# What `gpulab_nn::gpt::Text::read` asks for, with some to spare.
LEAST = 1 << 20
FALLBACK = "until there is one, training reads the course's own text, models/course/text.txt"
MANUAL = re.compile(r"usr/share/man/man\d[^/]*/[^/]+\.\d[^/]*\.gz$")
PAGE = re.compile(r"usr/share/doc/.*(\.(txt|md|rst|html)|/(README|NEWS|FAQ)[^/.]*)(\.gz)?$")
# A file of more is a list or a log.
LARGEST = 4 << 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="make corpus", description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=100, metavar="MB", help="stop at so many megabytes [default: 100]")
    parser.add_argument("--root", type=Path, default=Path("/"), help="the root of the Debian system [default: /]")
    chosen = parser.parse_args([*sys.argv[1:], *shlex.split(os.environ.get("ARGS", ""))])
    if chosen.most < 1:
        raise ToolError(f"{chosen.most} MB hold no text", "ask for at least 1 MB")
    text, sources = gather(chosen.root, chosen.most * 1_000_000)
    if len(text) < LEAST:
        what = f"the packages of {chosen.root} have {len(text)} bytes of documentation, and a corpus needs {LEAST}"
        raise ToolError(what, "on Debian or Ubuntu: apt install manpages-dev python3-doc, then make corpus", FALLBACK)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "sources.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["package", "version", "licences", "files", "bytes"])
        writer.writerows(sources)
    paths.write_text(FOLDER / "text.txt", text.decode())
    place = os.path.relpath(FOLDER, Path.cwd())
    print(
        f"{place}/text.txt: {len(text) / 1e6:.1f} MB from {sum(row[3] for row in sources)} files of {len(sources)} packages"
    )
    print(f"{place}/sources.csv: their licences")
    print('next: make train-gpt ARGS="--model small"')
    return 0


def gather(root: Path, most: int) -> tuple[bytes, list[tuple[str, str, str, int, int]]]:
    """The text, no paragraph twice, and of each package its name, version, licences, files and bytes."""
    seen: set[str] = set()
    text, sources = bytearray(), []
    for package, version, section in installed(root / "var/lib/dpkg/status"):
        if "/" in section:  # contrib/…, non-free/…
            continue
        licences = licences_of(root / "usr/share/doc" / package / "copyright")
        files, before = 0, len(text)
        for path in documents(root, package) if licences else ():
            paragraphs = [one for one in prose(path) if one not in seen]
            seen.update(paragraphs)
            files += bool(paragraphs)
            text += "".join(f"{one}\n\n" for one in dict.fromkeys(paragraphs)).encode()
            if len(text) >= most:
                break
        if files:
            sources.append((package, version, "; ".join(licences), files, len(text) - before))
        if len(text) >= most:
            break
    return bytes(text), sources


def installed(status: Path) -> Iterator[tuple[str, str, str]]:
    """Name, version and section of each installed package, by name."""
    try:
        stanzas = status.read_text(encoding="utf-8", errors="replace").split("\n\n")
    except OSError as error:
        what = f"this is no Debian system, so it has no documentation of known licences ({error})"
        raise ToolError(
            what, "run `make corpus` on Debian or Ubuntu, and copy data/corpus from there", FALLBACK
        ) from None
    fields = [dict(re.findall(r"^(Package|Version|Section|Status): (.*)$", one, re.MULTILINE)) for one in stanzas]
    found = {
        (one["Package"], one.get("Version", ""), one.get("Section", ""))
        for one in fields
        if one.get("Status", "").endswith(" installed")
    }
    return iter(sorted(found))


def licences_of(copyright_file: Path) -> list[str]:
    """The short names of all licences that a machine-readable copyright file gives to files."""
    try:
        stanzas = copyright_file.read_text(encoding="utf-8", errors="replace").split("\n\n")
    except OSError:
        return []
    if not re.match(r"\s*Format(-Specification)?:", stanzas[0]):
        return []
    files = [one for one in stanzas if re.search(r"^Files:", one, re.MULTILINE)]
    names = [re.search(r"^License: *(\S.*)$", one, re.MULTILINE) for one in files]
    return sorted({name.group(1).strip() for name in names if name})


def documents(root: Path, package: str) -> list[Path]:
    """The package's pages, in the order of their names."""
    lists = [
        *(root / "var/lib/dpkg/info").glob(f"{package}.list"),
        *(root / "var/lib/dpkg/info").glob(f"{package}:*.list"),
    ]
    names = [
        name.lstrip("/") for one in lists for name in one.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    wanted = [root / name for name in sorted(set(names)) if MANUAL.match(name) or PAGE.match(name)]
    return [path for path in wanted if path.is_file() and not path.is_symlink() and path.stat().st_size <= LARGEST]


def prose(path: Path) -> list[str]:
    """A page's paragraphs of running text, each on one line; none where it is no UTF-8 or damaged."""
    try:
        packed = path.read_bytes()
        raw = (gzip.decompress(packed) if path.name.endswith(".gz") else packed).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError):
        return []
    name = path.name.removesuffix(".gz")
    if "/man/" in path.as_posix():
        parts = manual(raw)
    elif name.endswith(".html"):
        parts = Paragraphs(raw).parts
    else:
        parts = re.split(r"\n\s*\n", raw)
    return [one for one in (" ".join(part.split()) for part in parts) if is_prose(one)]


def is_prose(paragraph: str) -> bool:
    """Sentences, and no table, list of names or code."""
    letters = sum(one.isalpha() or one == " " for one in paragraph)
    return len(paragraph) >= 80 and letters >= 0.9 * len(paragraph) and paragraph[-1] in ".:!?)"


FONTS = re.compile(r"^\.(B|I|R|BR|RB|BI|IB|IR|RI|SM|SB)\s+(.*)")
LITERAL = {".nf": ".fi", ".EX": ".EE", ".TS": ".TE"}
SIGNS = dict.fromkeys(("aq", "oq", "cq"), "'") | dict.fromkeys(("dq", "lq", "rq"), '"')
SIGNS |= dict.fromkeys(("em", "en", "hy"), "-") | {"rs": "\\", "ti": "~", "ha": "^"}


def manual(raw: str) -> list[str]:
    """The paragraphs of a manual page in the macros of man(7). Pages in others (mdoc) have none here."""
    if not re.search(r"^\.TH ", raw, re.MULTILINE):
        return []
    parts, until = [""], None
    for line in raw.splitlines():
        if until:
            until = None if line.startswith(until) else until
        elif line[:3] in LITERAL:
            until = LITERAL[line[:3]]
        elif font := FONTS.match(line):
            # Of two alternating fonts the words stand side by side without a space.
            words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', font.group(2))]
            parts[-1] += " " + ("" if len(font.group(1)) == 2 and font.group(1) != "SM" else " ").join(words)
        elif line.startswith((".", "'")):
            if not line.startswith(('.\\"', "'\\\"", ".ie", ".el", ".if", ".ft")):
                parts.append("")
        elif line.strip():
            parts[-1] += " " + line
        else:
            parts.append("")
    return [plain(part) for part in parts]


def plain(text: str) -> str:
    """Without roff's escapes."""
    text = re.sub(r"\\f(\[[^\]]*\]|\(..|.)|\\s[-+]?\d+|\\[&/,|^%:)]|\\\".*", "", text)
    text = re.sub(
        r"\\\(u?(..)|\\\[([^\]]*)\]|\\\*\((..)",
        lambda sign: SIGNS.get(sign.group(1) or sign.group(2) or sign.group(3), ""),
        text,
    )
    return text.replace("\\-", "-").replace("\\ ", " ").replace("\\~", " ").replace("\\'", "'").replace("\\e", "\\")


class Paragraphs(HTMLParser):
    """The text of each <p>, <li> and <dd>, without what stands in <pre>."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.parts: list[str] = [""]
        self.inside = self.literal = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in ("pre", "script", "style"):
            self.literal = True
        elif tag in ("p", "li", "dd", "div", "td", "h1", "h2", "h3", "h4"):
            self.parts.append("")
            self.inside = tag in ("p", "li", "dd")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("pre", "script", "style"):
            self.literal = False
        elif tag in ("p", "li", "dd", "ul", "ol"):
            self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside and not self.literal:
            self.parts[-1] += data


if __name__ == "__main__":
    tool(main)
