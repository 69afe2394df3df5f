"""What pages tell the reader to type: how blocks are marked, what is run, what is found wrong."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest
from env.ci import page_blocks
from env.ci.checks import FAILED, PASSED, SKIPPED, of_pages
from env.lint import typed_commands
from env.lint.blocks import Block, blocks, wrong
from env.notebooks import ROOT

PAGE = """# Page

```sh
true  # a comment
echo one \\
  two
```

*Not run by the tests: needs Docker.*

```sh
docker run x
```

<!-- tested by: notebooks -->
```sh
make run
```

<!-- runs until: ready|there -->
```sh
make lab
```
"""


def test_a_block_says_how_it_is_tested():
    run, docker, by, until = blocks(Path("page.md"), PAGE)
    assert run.is_run and run.commands == ["true", "echo one two"] and run.line == 3
    assert not docker.is_run and docker.reason == "needs Docker"
    assert not by.is_run and by.by == "notebooks"
    assert until.is_run and until.until == "ready|there"


def test_what_a_page_builds_is_built_as_the_program_is():
    """The set-up has built most of it then; optimised it would be minutes, for a second of work."""
    assert page_blocks.run(Block(Path("p.md"), 1, "sh", '[ "$CARGO_PROFILE_RELEASE_OPT_LEVEL" = 0 ]\n')) is None


@pytest.mark.parametrize(
    ("block", "what"),
    [
        (Block(Path("p.md"), 1, "", "x"), "no language"),
        (Block(Path("p.md"), 1, "fortran", "x"), "`fortran`"),
        (Block(Path("p.md"), 1, "sh", "sudo docker build .\n"), "needs `docker`"),
        (Block(Path("p.md"), 1, "sh", "make run\n", by="nobody"), "no step"),
        (Block(Path("p.md"), 1, "cuda", "x"), "nobody compiles"),
        (Block(Path("p.md"), 1, "sh", "docker run\n", reason="needs Docker"), None),
        (Block(Path("p.md"), 1, "sh", "make run\n"), None),
    ],
)
def test_a_wrong_mark_is_found(block, what):
    found = " ".join(one for one, _ in wrong(block, {"notebooks"}, typed_commands.OUTSIDE, set()))
    assert found == "" if what is None else what in found


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("make lab PORT=8888", None),
        ("CUDA_LAUNCH_BLOCKING=1 make lab", None),
        ('make train-cpu ARGS="--epochs 3 --data DIR"', None),
        ('make train-cpu ARGS="--epoches 3"', "--epoches"),
        ("gpulab train-gpt --steps 3000 --cats 4", "--cats"),
        ("make lap", "no target `lap`"),
        ("make run LANGUAGE=C", "no LANGUAGE"),
        ("python3 -m env.baselines.record_decode --plans fused", None),
        ("python3 -m env.baselines.record_decode --fast-please", "--fast-please"),
        ("python3 env/nobody.py", "there is no env/nobody.py"),
        ("cargo run -p gpulab-kernels --example inspect_pictures -- FOLDER", None),
        ("cargo run -p gpulab-nn --example nobody", "no example `nobody`"),
        ("cargo test -p nobody", "no crate nobody"),
        ("cargo run -p gpulab-cli --features fortran", "no feature `fortran`"),
        ("cargo run -p gpulab-cli --features nn", None),
        ("cargo run --example digits", "no crate is named"),
        ("cargo test --workspace", None),
        ("cargo add cudarc --no-default-features --features std,driver", None),
        ("gpulab demo late-error", None),
        ("gpulab demo early-error", "no command `gpulab demo early-error`"),
        ("gpulab trainn", "no command `gpulab trainn`"),
        ("gpulab export-onnx --opset 21", None),
        ("gpulab data mnist --hub OWNER/NAME", None),
        ("gpulab --help", None),
        ("gpulab demo --help", None),
        ("sh unpack.sh --to x", None),
        ("sh nobody.sh", "no script"),
        ("docker run whatever", None),
    ],
)
def test_a_command_that_does_not_exist_is_found(command, what):
    found = typed_commands.wrong(command)
    assert found is None if what is None else what in found


def test_spans_are_commands_only():
    text = "use `make lab`, `a[i]`, ``make x``, `sudo docker ps` and `gpu.zeros`\n```sh\nmake y\n```\n"
    assert list(typed_commands.spans(text)) == ["make lab", "sudo docker ps"]


def test_each_target_of_make_is_on_the_page_of_commands():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*?## ", makefile, flags=re.MULTILINE)) - {"help"}
    spans = " ".join(re.findall(r"`([^`]+)`", page))
    assert len(targets) > 30
    assert not [target for target in targets if not re.search(rf"(make |^| ){target}\b", spans)]


def test_blocks_are_run():
    assert page_blocks.run(Block(Path("p.md"), 1, "sh", "true\necho hello | grep -q hello\n")) is None
    failed = page_blocks.run(Block(Path("p.md"), 1, "sh", "echo before; false; echo after\n"))
    assert "status 1" in failed and "before" in failed and "after" not in failed
    assert page_blocks.run(Block(Path("p.md"), 1, "sh", "echo ready; sleep 60\n", until="rea?dy")) is None
    assert "status 0" in page_blocks.run(Block(Path("p.md"), 1, "sh", "echo over\n", until="ready"))


def test_a_block_hears_the_interrupt_where_the_tests_are_deaf_to_it():
    """As in what a shell runs in the background; the block would last its whole minute."""
    before, started = signal.signal(signal.SIGINT, signal.SIG_IGN), time.monotonic()
    try:
        assert page_blocks.run(Block(Path("p.md"), 1, "sh", "echo ready; sleep 60\n", until="ready")) is None
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - started < 30


def test_a_block_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(page_blocks, "LIMIT_S", 0.3)
    assert "did not end" in page_blocks.run(Block(Path("p.md"), 1, "sh", "sleep 60\n"))


def test_the_step_counts_and_lists():
    output = "ran      README.md:9   0.1 s\nFAILED   a.md:3   2.0 s  ended\nnot run  b.md:4   needs Docker\n"
    checks = of_pages(output + "by step  c.md:1 notebooks\nweb addresses, not fetched: 7\n")
    assert [check.state for check in checks] == [PASSED, FAILED, SKIPPED, SKIPPED]
    assert checks[2].note == "needs Docker" and checks[3].name == "7 web addresses of pages"


def test_the_calls_of_the_quick_reference_exist():
    text = (ROOT / "docs" / "quick-reference.md").read_text(encoding="utf-8")
    calls = set(re.findall(r"`(?:gpu|kernel|buffer|graph)\.(\w+)(?:::<\w+>)?\(", text))
    rooms = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "support-crate/src/gpu").glob("*.rs"))
    there = set(re.findall(r"pub fn (\w+)", rooms))
    assert len(calls) > 12 and calls <= there, calls - there
