"""`cargo metadata` without the crates and features that are not built for this platform. Standard library only.

usage: metadata.py CARGO metadata …    What cannot be made shorter is passed on as it is.
"""

from __future__ import annotations

import json
import subprocess
import sys

# What both commands know, and what decides on which crates there are.
WITH_VALUE = ("--manifest-path", "--lockfile-path", "--config")
ALONE = ("--offline", "--locked", "--frozen")


def built(cargo: str, arguments: list[str]) -> dict[tuple[str, str], set[str]]:
    """Name and version of each crate that is built, with its features, as `cargo tree` tells them."""
    platform = arguments[arguments.index("--filter-platform") + 1]
    command = [
        cargo,
        "tree",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--format",
        "{p}|{f}",
        "--target",
        platform,
    ]
    for word, value in zip(arguments, [*arguments[1:], ""], strict=True):
        if word in WITH_VALUE:
            command += [word, value]
        elif word in ALONE or word.startswith("-Z"):
            command.append(word)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[tuple[str, str], set[str]] = {}
    for line in done.stdout.splitlines():
        crate, bar, features = line.removesuffix(" (*)").rpartition("|")
        if bar:
            name, version = crate.split()[:2]
            found.setdefault((name, version.removeprefix("v")), set()).update(filter(None, features.split(",")))
    return found


def shorten(metadata: dict, found: dict[tuple[str, str], set[str]]) -> dict:
    """Keeps what is built."""
    ids = {one["id"]: (one["name"], one["version"]) for one in metadata["packages"]}
    if not all(ids[member] in found for member in metadata["workspace_members"]):
        raise LookupError("this tree is of another crate")
    kept = {id for id, crate in ids.items() if crate in found}
    metadata["packages"] = [one for one in metadata["packages"] if one["id"] in kept]
    nodes = [node for node in metadata["resolve"]["nodes"] if node["id"] in kept]
    for node in nodes:
        node["dependencies"] = [id for id in node["dependencies"] if id in kept]
        node["deps"] = [one for one in node["deps"] if one["pkg"] in kept]
        node["features"] = [one for one in node["features"] if one in found[ids[node["id"]]]]
    metadata["resolve"]["nodes"] = nodes
    return metadata


def main(cargo: str, arguments: list[str]) -> int:
    """cargo's own status, and what it said."""
    done = subprocess.run([cargo, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    answer = done.stdout
    if done.returncode == 0:
        try:
            answer = json.dumps(shorten(json.loads(answer), built(cargo, arguments))) + "\n"
        except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
            # The long answer is right, too.
            answer = done.stdout
    sys.stdout.write(answer)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
