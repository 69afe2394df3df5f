"""`make colab`: writes the Colab edition, colab/NN_slug.ipynb, from the notebooks; `--check` only says what is stale."""

from __future__ import annotations

import sys

from env import in_venv
from env.console import ToolError, tool


def main() -> None:
    """Ends well when all files are as they must be."""
    from env.colab import written
    from env.notebooks import write

    stale = written.stale()
    if stale and "--check" in sys.argv[1:]:
        raise ToolError(f"not as the notebooks are: {written.names(stale)}", "make colab")
    texts = written.wanted()
    for path in stale:
        if path in texts:
            write(path, texts[path])
        else:
            path.unlink()
    print(f"written: {written.names(stale)}" if stale else "the Colab edition is as the notebooks are")


if __name__ == "__main__":
    in_venv.enter(set_up=False)
    tool(main)
