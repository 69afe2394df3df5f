"""Commands of the tools, called by a Python that has the standard library alone."""

from __future__ import annotations

import subprocess
import sys

import pytest
from env.paths import ROOT

ENTERS = """import runpy, sys
from env import in_venv
in_venv.enter = lambda *packages, **rest: sys.exit(f"entered for {' '.join(packages) or 'what is there'}")
runpy.run_module("env.{name}", run_name="__main__")
"""
COMMANDS = {
    **dict.fromkeys(["grading.assignment", "grading.grade", "grading.class_of_30"], "grading"),
    **dict.fromkeys(["syllabi", "lint.glossary", "lint.figures"], "what is there"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_python_without_packages_comes_as_far_as_the_environment(name: str) -> None:
    command = [sys.executable, "-S", "-c", ENTERS.replace("{name}", name)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr.strip() == f"entered for {COMMANDS[name]}"
