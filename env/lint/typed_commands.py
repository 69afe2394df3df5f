"""Whether what pages tell the reader to type exists: targets of make, tools in env/, programs of cargo, `gpulab`."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import dropwhile, pairwise
from pathlib import Path

from env.command import answer
from env.lint import page_rules
from env.lint.blocks import first_word
from env.notebooks import ROOT

SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")
# Programs of others, which a page may name; what they do is theirs, and tests have none of them for certain.
OUTSIDE = {
    "apt", "apt-get", "brew", "colab", "compute-sanitizer", "curl", "debootstrap", "docker", "docker-compose", "ncu", "nsys",
    "nvcc", "nvidia-smi", "rustup", "trtexec", "xcode-select",
}  # fmt: skip
# What can be typed behind `gpulab`, as clap reads it; commands of a group stand in an enum of its name.
OPTIONS = "crates/cli/src/options.rs"
GROUPS = ("demo", "data")
OURS = {"make", "python3", "python", "cargo", "gpulab", "sh", "git", ".venv/bin/python", "target/release/gpulab"}


def spans(text: str) -> Iterator[str]:
    """Inline code that is a command: it begins with a program that pages name."""
    for span in SPAN.findall("\n".join(page_rules.prose(text))):
        if first_word(span) in OURS | OUTSIDE:
            yield span


def wrong(command: str) -> str | None:
    """What is wrong with a command of ours; None for a good one, and for programs of others."""
    words = list(dropwhile(lambda word: word == "sudo" or re.match(r"^[A-Z_]+=", word), command.split()))
    program = words[0] if words else ""
    if program == "make":
        return _make(words[1:]) or _program(command)
    if program in ("python3", "python", ".venv/bin/python") and words[1:2] == ["-m"] and len(words) > 2:
        return _tool(words[2], command)
    if program in ("python3", "python", ".venv/bin/python") and len(words) > 1 and words[1].endswith(".py"):
        return f"there is no {words[1]}: a tool is called as `python3 -m env.NAME`"
    if program == "cargo":
        return _cargo(words[1:])
    if program in ("gpulab", "target/release/gpulab") and len(words) > 1:
        typed = [word for word in words[1 : 3 if words[1] in GROUPS else 2] if not word.startswith("--")]
        verb = " ".join(typed)
        known = verb in _verbs() or verb in ("", *GROUPS)
        return _program(command) if known else f"there is no command `gpulab {verb}`"
    if program == "sh" and len(words) > 1 and words[1] != "-c" and not _is_script(words[1]):
        return f"there is no script {words[1]}"
    return None


@cache
def _text(path: str) -> str:
    file = ROOT / path
    return file.read_text(encoding="utf-8") if file.is_file() else ""


@cache
def _tools() -> str:
    return "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "env").rglob("*.py") if "tests" not in path.parts
    )


def _kebab(name: str) -> str:
    """The name that clap makes of one in Rust."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower().replace("_", "-")


@cache
def _verbs() -> set[str]:
    """The commands of `gpulab`: `train`, `demo ladder`."""
    found = {}
    for name in ("Command", *(group.capitalize() for group in GROUPS)):
        body = _text(OPTIONS).partition(f"pub enum {name} {{")[2].partition("\n}")[0]
        found[name] = {_kebab(one) for one in re.findall(r"^    ([A-Z]\w+)", body, flags=re.MULTILINE)}
    single = found.pop("Command") - set(GROUPS)
    return single | {f"{group.lower()} {one}" for group, ones in found.items() for one in ones}


@cache
def _options() -> set[str]:
    """The options of all its commands."""
    fields = re.findall(r"#\[arg\(\s*long\b[^\]]*\]\s*(?:pub )?(\w+):", _text(OPTIONS))
    return {"help", "version", *map(_kebab, fields)}


@cache
def _packages() -> dict[str, dict]:
    """The workspace's crates by their names, as cargo reads them."""
    command = ["cargo", "metadata", "--no-deps", "--offline", "--format-version=1"]
    packages = json.loads(answer(command, "make setup"))["packages"]
    return {package["name"]: package for package in packages}


def _program(command: str) -> str | None:
    """Options of our own programs, given to them or by `make`'s ARGS."""
    missing = [flag for flag in FLAG.findall(command) if flag not in _options() and f"--{flag}" not in _tools()]
    return f"no program of ours knows --{missing[0]}" if missing else None


def _make(words: list[str]) -> str | None:
    makefile = _text("Makefile")
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", makefile, flags=re.MULTILINE))
    for word in words:
        name, is_variable, _ = word.partition("=")
        if is_variable and not re.search(rf"\b{re.escape(name)}\b", makefile):
            return f"the Makefile knows no {name}"
        if not is_variable and re.match(r"^[a-z]", word) and word not in targets:
            return f"the Makefile has no target `{word}`"
    return None


def _tool(module: str, command: str) -> str | None:
    """What the tool itself says of its options, by its function `parser`."""
    place = ROOT.joinpath(*module.split("."))
    files = [place.with_suffix(".py"), place / "main.py", place / "__main__.py"]
    there = [file for file in files if file.is_file()]
    if module.split(".")[0] != "env" or not there:
        return f"there is no tool {module}" if module.startswith("env") else None
    tool = import_module(".".join(there[0].relative_to(ROOT).with_suffix("").parts))
    words = shlex.split(re.split(r"\s(?:&&|\|)\s", command.split(f"-m {module}")[1])[0])
    if not hasattr(tool, "parser"):
        missing = [flag for flag in words if flag.startswith("--") and f'"{flag}"' not in there[0].read_text("utf-8")]
        return f"{module} knows no {missing[0]}" if missing else None
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            tool.parser().parse_args(words)
    except SystemExit as end:
        return said.getvalue().strip().splitlines()[-1] if end.code else None
    return None


def _cargo(words: list[str]) -> str | None:
    # Those change a reader's own crate.
    if words[:1] in (["add"], ["remove"], ["new"]):
        return None
    after = dict(pairwise(words))
    name = after.get("-p") or after.get("--package")
    if name is None:
        asked = {"--example", "--test", "--bench", "--features"} & set(after)
        return "no crate is named: `-p NAME`" if asked else None
    package = _packages().get(name)
    if package is None:
        return f"there is no crate {name}"
    targets = {(kind, target["name"]) for target in package["targets"] for kind in target["kind"]}
    for kind in ("example", "test", "bench"):
        if (wanted := after.get(f"--{kind}")) and (kind, wanted) not in targets:
            return f"{name} has no {kind} `{wanted}`"
    unknown = [one for one in (after.get("--features") or "").split(",") if one and one not in package["features"]]
    return f"{name} has no feature `{unknown[0]}`" if unknown else None


def _is_script(name: str) -> bool:
    return (ROOT / name).is_file() or any((ROOT / "env").rglob(Path(name).name))
