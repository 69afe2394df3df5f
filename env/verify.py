"""What this machine has for the course (`make verify`): builds the program `gpulab` if need be, and becomes it."""

from __future__ import annotations

import contextlib
import os
import sys

from env import paths
from env.console import SetupError, problem
from env.setup import program, rust


def main() -> int:
    """Prints the accelerators found; as JSON with JSON=1 or --json."""
    try:
        # Only the answer on stdout: with JSON=1 another program reads it.
        with contextlib.redirect_stdout(sys.stderr):
            program.program(rust.toolchain(quiet=True), quiet=True)
    except SetupError as error:
        problem(error)
        return 1
    except OSError as error:
        problem(SetupError(str(error), f"see that {paths.ROOT} is writable, with room on its disk"))
        return 1
    wants_json = bool(os.environ.get("JSON")) or "--json" in sys.argv[1:]
    command = [str(paths.PROGRAMS / "gpulab"), "verify", *(["--json"] if wants_json else [])]
    environment = {**os.environ, "LD_LIBRARY_PATH": paths.library_path()}
    sys.stdout.flush()
    os.execve(command[0], command, environment)


if __name__ == "__main__":
    sys.exit(main())
