"""The development container of VS Code and Codespaces: its file is sound, and its steps exist in the course."""

from __future__ import annotations

import json
import re
from pathlib import Path

from env import paths

FILE = paths.ROOT / ".devcontainer" / "devcontainer.json"
# Of https://containers.dev/implementors/json_reference/, those that an image without Compose takes.
KEYS = {
    *("name", "image", "features", "hostRequirements", "forwardPorts", "portsAttributes", "containerEnv", "remoteEnv"),
    *("remoteUser", "customizations", "runArgs", "mounts", "initializeCommand", "onCreateCommand"),
    *("updateContentCommand", "postCreateCommand", "postStartCommand", "postAttachCommand", "waitFor"),
}
NEEDED = Path(".ci/run")


def test_each_key_is_one_that_the_format_knows():
    assert set(json.loads(FILE.read_text())) <= KEYS


def test_it_installs_what_a_bare_ubuntu_lacks_and_calls_targets_that_exist():
    made = json.loads(FILE.read_text())
    commands = " ".join(value for key, value in made.items() if key.endswith("Command"))
    targets = re.findall(r"\bmake ([\w-]+)", commands)
    makefile = (paths.ROOT / "Makefile").read_text()
    assert targets and all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)
    # The same packages that CI adds to a bare system; git, make and curl come with the image, a browser, and npm for what it runs, are CI's own.
    missing = set(re.findall(r"missing\+=\(([^)]+)\)", (paths.ROOT / NEEDED).read_text()))
    there = {"git", "make", "curl", "ca-certificates", "chromium", "fonts-dejavu-core", "npm"}
    for packages in missing:
        assert set(packages.split()) <= there | set(commands.split()), packages
