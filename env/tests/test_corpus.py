"""`make corpus`: what is taken from a Debian system, under which licences, and what each fault says."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest
from env import corpus
from env.console import ToolError

FREE = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nLicense: Expat\n\nFiles: x\nLicense: GPL-2+\n"
SENTENCE = "The command waits for the device until all of its work has been done, and then says how long it took."
PAGE = f""".TH WAIT 1
.SH DESCRIPTION
The
.B wait
command {SENTENCE[12:]}
.PP
.nf
int wait(void); /* is code and no running text, so that nothing of it belongs into what is learned */
.fi
.BR open (2)
and \\fIclose\\fP are \\(lqcalls\\(rq of the system, as are some of the others that stand on the following pages.
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system with nothing installed yet; the corpus goes into a folder of its own, and may be small."""
    (tmp_path / "var/lib/dpkg/info").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text("")
    monkeypatch.setattr(corpus, "FOLDER", tmp_path / "corpus")
    monkeypatch.setattr(corpus, "LEAST", 100)
    monkeypatch.delenv("ARGS", raising=False)
    monkeypatch.setattr("sys.argv", ["corpus", "--root", str(tmp_path)])
    return tmp_path


def install(root: Path, name: str, files: dict[str, bytes], copyright_file: str = FREE, section: str = "doc") -> None:
    with (root / "var/lib/dpkg/status").open("a") as status:
        status.write(f"Package: {name}\nStatus: install ok installed\nSection: {section}\nVersion: 1.2-3\n\n")
    for path, content in {f"usr/share/doc/{name}/copyright": copyright_file.encode(), **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    (root / f"var/lib/dpkg/info/{name}.list").write_text("".join(f"/{path}\n" for path in files))


def test_prose_of_free_packages_is_taken_once_with_its_licences(root: Path) -> None:
    long = f"{SENTENCE} It is long enough."
    web = f"<h1>Waiting</h1><p>{long}</p><pre>{SENTENCE}</pre><p>Short.</p>".encode()
    install(
        root, "wait", {"usr/share/man/man1/wait.1.gz": gzip.compress(PAGE.encode()), "usr/share/doc/wait/a.html": web}
    )
    install(root, "again", {"usr/share/doc/again/README.gz": gzip.compress(SENTENCE.encode())})
    install(root, "closed", {"usr/share/doc/closed/b.txt": b"No " * 40 + b"sentence."}, section="non-free/doc")
    install(
        root, "unsaid", {"usr/share/doc/unsaid/b.txt": b"No " * 40 + b"sentence."}, "This was packaged by somebody."
    )
    latin = "Caf\xe9 ".encode("latin-1") * 40
    install(root, "latin", {"usr/share/doc/latin/b.txt": latin, "usr/share/doc/latin/c.txt.gz": b"cut off"})
    corpus.main()
    paragraphs = (root / "corpus/text.txt").read_text().strip().split("\n\n")
    assert paragraphs == [
        SENTENCE,
        long,
        SENTENCE.replace("The command", "The wait command"),
        'open(2) and close are "calls" of the system, as are some of the others that stand on the following pages.',
    ]
    rows = list(csv.DictReader((root / "corpus/sources.csv").open()))
    assert [(row["package"], row["licences"], row["files"]) for row in rows] == [
        ("again", "Expat; GPL-2+", "1"),
        ("wait", "Expat; GPL-2+", "2"),
    ]
    assert sum(int(row["bytes"]) for row in rows) == (root / "corpus/text.txt").stat().st_size


def test_too_little_and_no_debian_at_all_are_told_what_is_trained_on_meanwhile(root: Path) -> None:
    with pytest.raises(ToolError, match="0 bytes of documentation.*\nnext: on Debian or Ubuntu: apt install") as error:
        corpus.main()
    assert "the course's own text" in error.value.loses
    (root / "var/lib/dpkg/status").unlink()
    with pytest.raises(ToolError, match="no Debian system"):
        corpus.main()
    assert not (root / "corpus").exists()


def test_it_stops_at_so_many_megabytes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        lines = "\n\n".join(f"{SENTENCE} This is sentence {at} of package {name}." for at in range(9000))
        install(root, name, {f"usr/share/doc/{name}/b.txt": lines.encode()})
    monkeypatch.setattr("sys.argv", ["corpus", "--root", str(root), "--most", "1"])
    corpus.main()
    assert 1_000_000 <= (root / "corpus/text.txt").stat().st_size < 9_000_000
    assert len((root / "corpus/sources.csv").read_text().splitlines()) == 2
    monkeypatch.setattr("sys.argv", ["corpus", "--root", str(root), "--most", "0"])
    with pytest.raises(ToolError, match="hold no text"):
        corpus.main()
