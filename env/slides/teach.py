#!/usr/bin/env python3
"""A lesson as live slides in JupyterLab (`make teach NB=10`): cells run in the Rust kernel, solutions come when asked for.

The slides are a copy in my-lessons/, made anew; the teacher's notes are a page of their own, for another screen.
"""

from __future__ import annotations

import os

from env import in_venv, lab, paths
from env.console import ToolError, tool

SETTINGS = paths.GENERATED / "teach"
# The extension starts with the page. These settings are the teacher's own, and stay: a dark theme is chosen once.
START = SETTINGS / "jupyterlab-slideshow" / "plugin.jupyterlab-settings"
NOTEBOOKS = SETTINGS / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
KEYS = """arrow keys: to the right the next section, down within it; the cards end it
Ctrl-Enter runs a cell; Shift-Enter runs it and goes on to the next slide, away from what it shows"""
EXTENSION = paths.VENV / "share" / "jupyter" / "labextensions" / "jupyterlab-slideshow"


def write_settings() -> None:
    """What JupyterLab is told for slides; what the teacher has chosen in the page stays."""
    # Whoever ended the slides in the page has switched them off there.
    paths.write_json(START, {**paths.read_json(START), "active": True})
    # Many lines of code are wider than a screen at this size, and their ends would be cut off. JupyterLab adds comments
    # to what it writes itself, so a file that is there is not read, but left.
    if not NOTEBOOKS.exists():
        paths.write_json(NOTEBOOKS, {"codeCellConfig": {"lineWrap": True}})


def main() -> int:
    """Runs until Ctrl-C or until the server ends."""
    from env import notebooks
    from env.slides import live

    for number in lab.ENDINGS:
        lab.signal.signal(number, lab.leave)
    found = notebooks.find(os.environ.get("NB") or "00")
    if len(found) > 1:
        named = ", ".join(path.stem for path in found)
        raise ToolError(f"NB={os.environ['NB']} names {named}", f"name one: make teach NB={found[0].stem}")
    if not EXTENSION.is_dir():
        raise ToolError("jupyterlab-slideshow is not installed", "make teach, where packages can be fetched")
    slides, notes = live.make(notebooks.load(found[0]))
    write_settings()
    os.environ["JUPYTERLAB_SETTINGS_DIR"] = str(SETTINGS)
    port = lab.choose_port(os.environ.get("PORT", ""))
    token = lab.choose_token(os.environ.get("GPULAB_TOKEN", ""))
    with lab.running(port, token, notebooks.relative(slides)) as server:
        print(f"your notes, for a screen that the class does not see:\n\n  {notes.as_uri()}\n")
        print(KEYS)
        lab.show(port, token, server.pid, notebooks.relative(slides))
        return server.wait()


if __name__ == "__main__":
    in_venv.enter("teach")
    tool(main)
