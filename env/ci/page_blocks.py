#!/usr/bin/env python3
"""Tests what the pages tell the reader to type: runs their blocks, checks that each command exists, lists what is not run.

The last line counts.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

from env import in_venv

# Against a command that hangs, and no limit to a slow machine.
LIMIT_S = 3600
# A shell starts what runs in the background deaf to Ctrl-C, and so would be its blocks: they would last to their end.
HEARS = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
WEB = re.compile(r"https?://[^\s<>)\"`|]+")


def run(block) -> str | None:
    """Runs a block as a reader would, from the repository's root; None when all its commands ended well, or it said
    what it runs until: then it is interrupted, as by Ctrl-C."""
    from env.notebooks import ROOT
    from env.setup import gpulab_program

    # What the pages build is built as the set-up builds the program: most of it is there then.
    environment = {**os.environ, **gpulab_program.SETTINGS, "NO_BROWSER": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", HEARS, "bash", "-euo", "pipefail", "-c", block.text], cwd=ROOT, env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    late = threading.Timer(LIMIT_S, os.killpg, (process.pid, signal.SIGKILL))
    late.start()
    said, reached = [], False
    for line in process.stdout:
        said.append(line.rstrip())
        if block.until and not reached and re.search(block.until, line):
            reached = True
            os.killpg(process.pid, signal.SIGINT)
    status = process.wait()
    late.cancel()
    if reached or (status == 0 and not block.until):
        return None
    if status == -signal.SIGKILL:
        return f"did not end within {LIMIT_S} s: " + "\n".join(said[-8:])
    return f"ended with status {status}: " + "\n".join(said[-8:])


def main() -> int:
    """1 where a block failed, or something is said that does not exist."""
    from env.lint import file_rules, page_rules, typed_commands
    from env.lint.blocks import LANGUAGES, blocks
    from env.notebooks import relative

    everything = [path for path in file_rules.files() if path.suffix == ".md"]
    counts: Counter[str] = Counter()
    outside: Counter[str] = Counter()
    web: set[str] = set()
    found = [str(finding) for page in everything for finding in file_rules.typed(page)]
    for page in everything:
        text = page.read_text(encoding="utf-8")
        web |= {one.rstrip(".,;:*_") for one in WEB.findall("\n".join(page_rules.prose(text)))}
        for command in typed_commands.spans(text):
            program = typed_commands.first_word(command)
            outside[program] += program in typed_commands.OUTSIDE
            counts["known"] += program in typed_commands.OURS
        for block in blocks(page, text):
            where = f"{relative(page)}:{block.line}"
            if block.is_run:
                started, problem = time.monotonic(), run(block)
                print(
                    f"{'FAILED' if problem else 'ran':<9}{where:<34}{time.monotonic() - started:6.1f} s  {problem or ''}"
                )
                counts["failed" if problem else "ran"] += 1
            elif block.reason:
                print(f"{'not run':<9}{where:<34} {block.reason}")
                counts["not run"] += 1
            elif by := block.by or LANGUAGES.get(block.language):
                print(f"{'by step':<9}{where:<34} {by}")
                counts["by"] += 1
    named = ", ".join(f"{name} ({count})" for name, count in sorted(outside.items()) if count)
    print(f"programs of others, named and not run: {named}")
    print(f"web addresses, not fetched: {len(web)}")
    print("\n".join(found))
    print(
        f"pages: {len(everything)} pages, {counts['ran']} blocks run, {counts['by']} run by other steps, "
        f"{counts['not run']} not run, {counts['known']} commands in the text known, {sum(outside.values())} of others, "
        f"{counts['failed']} failed, {len(found)} findings"
    )
    return 1 if found or counts["failed"] else 0


if __name__ == "__main__":
    in_venv.enter(set_up=False)
    sys.exit(main())
