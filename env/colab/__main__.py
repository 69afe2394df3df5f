"""`make colab`: writes the Colab edition, colab/NN_slug.ipynb, from the notebooks."""

from __future__ import annotations

from env import in_venv
from env.console import tool


def main() -> None:
    """Ends well when all files are as they must be."""
    from env.colab import written
    from env.notebooks import relative, write

    stale, texts = written.stale(), written.wanted()
    for path in stale:
        if path in texts:
            write(path, texts[path])
        else:
            path.unlink()
    print(f"written: {', '.join(map(relative, stale))}" if stale else "the Colab edition is as the notebooks are")


if __name__ == "__main__":
    in_venv.enter(set_up=False)
    tool(main)
