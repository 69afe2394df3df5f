#!/usr/bin/env python3
"""`make test`: proves the whole course. The last line is `N passed, N failed, N skipped`; status 0 without failures."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time

from env.ci import disk, steps
from env.ci.checks import FAILED, SKIPPED, Check, count
from env.ci.processes import ROOT, Commands

TAIL_LINES = 60
STILL_S = 60


class Test:
    """One call of `make test`: steps in rows side by side, because each leaves a core idle at times."""

    def __init__(self) -> None:
        self.commands = Commands(steps.log_folder())
        self.checks: list[Check] = []
        self.lock = threading.Lock()
        self.running: dict[str, float] = {}
        # Of each step whether it went well, once it has ended.
        self.good: dict[steps.Step, bool] = {}
        self.ended: dict[steps.Step, threading.Event] = {}

    def step(self, step: steps.Step) -> bool:
        """Runs one step and prints its line; on failure what it printed."""
        started, name = time.monotonic(), step.__name__.replace("_", " ")
        if self.commands.stopped:
            return False
        self.running[name] = started
        try:
            checks, output = step(self.commands)
        except OSError as error:
            text = f"{error}\nnext: make results/run writable, with room on its disk"
            checks, output = [Check(step.__name__, FAILED, str(error))], text
        finally:
            self.running.pop(name, None)
        self._report(step, checks, output, time.monotonic() - started)
        return all(check.state != FAILED for check in checks)

    def _report(self, step: steps.Step, checks: list[Check], output: str, seconds: float) -> None:
        failed = [check for check in checks if check.state == FAILED]
        with self.lock:
            self.checks += checks
            name = step.__name__.replace("_", " ")
            print(f"{'FAILED' if failed else 'ok':<7}{name:<14}{seconds:7.1f} s  {count(checks)}", flush=True)
            for check in checks:
                if check.state == SKIPPED:
                    print(f"       skipped: {check.name}: {check.note}")
            for check in failed:
                print(f"       failed: {check.name} {check.note}".rstrip().replace("\n", "\n       "))
            if any(not check.note.strip() for check in failed):
                lines = output.strip().splitlines()[-TAIL_LINES:]
                print("       | " + "\n       | ".join(lines), flush=True)

    def row(self, row: list[steps.Step]) -> None:
        """Runs steps one after the other; each waits for those that it needs, and fails where one of them did."""
        for step in row:
            needs = [one for one in steps.NEEDS.get(step, []) if one in self.ended]
            for other in (*needs, *(one for one in steps.AFTER.get(step, []) if one in self.ended)):
                self.ended[other].wait()
            lost = [other.__name__.replace("_", "-") for other in needs if not self.good[other]]
            try:
                self.good[step] = not lost and self.step(step)
                if lost and not self.commands.stopped:
                    why = f"not run: the step {lost[0]} failed"
                    self._report(step, [Check(step.__name__, FAILED, why)], "", 0.0)
            finally:
                self.good.setdefault(step, False)
                self.ended[step].set()

    def run(self, *rows: list[steps.Step]) -> int:
        """All rows to their end."""
        started = time.monotonic()
        self.ended = {step: threading.Event() for row in rows for step in row}
        threads = [threading.Thread(target=self.row, args=(row,)) for row in rows]
        for row in threads:
            row.start()
        told = started
        try:
            while any(row.is_alive() for row in threads):
                time.sleep(0.1)
                if time.monotonic() - told > STILL_S:
                    told = time.monotonic()
                    for name, since in list(self.running.items()):
                        print(f"...    {name:<14}{told - since:7.1f} s  still running", flush=True)
        except KeyboardInterrupt:
            print("\nstopping", flush=True)
            self.commands.stop()
            for row in threads:
                row.join()
            return 130
        print(f"\n{time.monotonic() - started:.0f} s; the steps' output: results/run/test/")
        print(count(self.checks), flush=True)
        return 1 if any(check.state == FAILED for check in self.checks) else 0


def main(more: bool = False) -> int:
    """1 at once where the disk has no room for what the steps write; `more` is `make test-all`."""
    if problem := disk.missing(ROOT):
        print(f"error: {problem}", file=sys.stderr, flush=True)
        print(count([Check("room on the disk", FAILED)]), flush=True)
        return 1
    return Test().run([*steps.CARGO, *(steps.MORE if more else [])], steps.SET_UP, steps.BESIDE)


if __name__ == "__main__":
    made = argparse.ArgumentParser(prog="python3 -m env.ci", description=__doc__)
    made.add_argument(
        "--all", action="store_true", help="also what `make test-all` proves: Macs, Colab, book, container"
    )
    chosen = made.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # rustup's folder, for a Rust that the set-up installs while this runs.
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", ""), os.path.expanduser("~/.cargo/bin")])
    os.environ["GPULAB_SET_UP"] = "1"
    sys.exit(main(chosen.all))
