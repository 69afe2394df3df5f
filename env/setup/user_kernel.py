"""The Rust kernel for the Jupyter that a reader has already, VS Code and JupyterHub included (`make kernel`).

They look for kernels in the user's own folder of Jupyter's; the entry there names this checkout by its full path.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from env import paths
from env.console import tool
from env.setup.python import kernel_spec


def folder() -> Path:
    """The user's: ~/.local/share/jupyter/kernels/…, ~/Library/Jupyter/kernels/… on a Mac, or below JUPYTER_DATA_DIR."""
    from jupyter_core.paths import jupyter_data_dir

    return Path(jupyter_data_dir()) / "kernels" / paths.KERNEL_NAME


def main() -> None:
    """Writes the entry, or removes it with --remove."""
    place = folder()
    if "--remove" in sys.argv[1:]:
        shutil.rmtree(place, ignore_errors=not place.exists())
        print(f"removed: {place}")
    else:
        paths.write_text(place / "kernel.json", json.dumps(kernel_spec(), indent=1) + "\n")
        print(f"`{kernel_spec()['display_name']}`: {place}\nnext: choose it as the kernel of a notebook")


if __name__ == "__main__":
    tool(main)
