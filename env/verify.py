"""What this machine has for the course (`make verify`): builds the program `gpulab` if need be, and becomes it."""

from __future__ import annotations

import os
import sys

from env.console import tool
from env.setup import gpulab_program

if __name__ == "__main__":
    # As JSON with JSON=1 or --json.
    as_json = ["--json"] if os.environ.get("JSON") or "--json" in sys.argv[1:] else []
    tool(lambda: gpulab_program.become("verify", *as_json))
