"""Plots as PNG, for viewers that show no SVG (GitHub, a JupyterLab that does not trust the notebook).

`python3 -m env.run.redraw results/h200` draws those of a recorded run again: it needs fonts, and a GPU server may have none.
"""

from __future__ import annotations

import base64
import copy
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from env import command, in_venv
from env.console import ToolError

SVG, PNG, HTML = "image/svg+xml", "image/png", "text/html"
FONT_FOLDERS = (
    "/usr/share/fonts",
    "/usr/local/share/fonts",
    "~/.fonts",
    "~/.local/share/fonts",
    "/System/Library/Fonts",
    "/Library/Fonts",
)

# Looked for in this order; where none of them is installed, fontconfig is asked.
SANS = ("sans-serif", "DejaVu Sans", "Liberation Sans", "Noto Sans", "Roboto", "Arial", "Helvetica")
MONOSPACE = ("monospace", "DejaVu Sans Mono", "Liberation Mono", "Noto Sans Mono", "Courier New", "Menlo")


@cache
def font_files() -> list[Path]:
    """The fonts that are installed."""
    folders = [Path(folder).expanduser() for folder in FONT_FOLDERS]
    return sorted(file for folder in folders if folder.is_dir() for file in folder.rglob("*.[to]t[fc]"))


def fonts_missing() -> bool:
    """True where no font is installed, so that a PNG would have no text. (SVGs and pages are drawn by a browser.)"""
    return not font_files()


@cache
def families() -> dict[str, str]:
    """What the renderer is to take for `sans-serif` and `monospace`: by itself it looks for Arial, and draws no letters."""
    installed = {file.stem.removesuffix("-Regular").replace(" ", "") for file in font_files()}
    found = {}
    for argument, (kind, *names) in (("sans_serif_family", SANS), ("monospace_family", MONOSPACE)):
        known = next((name for name in names if name.replace(" ", "") in installed), None)
        found[argument] = known or command.output(["fc-match", "--format=%{family[0]}", kind])
    return {argument: name for argument, name in found.items() if name}


def png(svg: str, name: str) -> bytes:
    """The picture, at twice the size of the figure."""
    import resvg_py

    try:
        return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=2, **families()))
    except Exception as error:
        text = f"the plot of cell {name} is no SVG that can be drawn: {error}"
        raise ToolError(text, "look at the SVG; the crate's module `plot` writes it") from error


def beside(plots: Iterable[Path]) -> list[Path]:
    """A PNG beside each SVG; none, and a word about it, where no font is installed."""
    pictures = {plot: plot.with_suffix(".png") for plot in plots}
    if pictures and fonts_missing():
        print("no PNGs beside the plots: no font is installed\nnext: install one (apt install fonts-dejavu-core)")
        return []
    for plot, picture in pictures.items():
        picture.write_bytes(png(plot.read_text(encoding="utf-8"), plot.stem))
    return list(pictures.values())


def with_pictures(notebook):
    """A copy whose plots are pictures.

    The HTML form of a plot is for the page that ran it: elsewhere its SVG is taken out as unsafe, and only loose words
    are left.
    """
    changed = copy.deepcopy(notebook)
    for cell in changed.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if SVG in data:
                data.pop(HTML, None)
                if not fonts_missing():
                    data[PNG] = base64.b64encode(png(data[SVG], cell.id)).decode()
    return changed


def redraw(folder: Path) -> int:
    """Draws the pictures of a run again: beside each SVG, and in the executed copies. Says how many plots there are."""
    import nbformat

    from env.notebooks import write

    plots = beside(sorted((folder / "plots").glob("*.svg")))
    for path in sorted(folder.glob("*.ipynb")):
        write(path, nbformat.writes(with_pictures(nbformat.read(path, 4))) + "\n")
    return len(plots)


if __name__ == "__main__":
    in_venv.enter(set_up=False)
    if len(sys.argv) != 2 or not Path(sys.argv[1], "plots").is_dir():
        sys.exit("error: name the folder of one recorded run\nnext: python3 -m env.run.redraw results/h200")
    if fonts_missing():
        sys.exit("error: no font is installed here, so pictures would have no text\nnext: install any TrueType font")
    print(f"{redraw(Path(sys.argv[1]))} plots drawn")
