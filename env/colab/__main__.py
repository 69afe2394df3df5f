"""`make colab`: writes the Colab edition, colab/NN_slug.ipynb, from the notebooks; `--check` only says what is stale."""

from __future__ import annotations

import sys

from env import in_venv


def main(check: bool) -> int:
    """0 when all files are as they must be."""
    from env.colab import written
    from env.notebooks import Problem, write

    try:
        stale = written.stale()
        if check and stale:
            raise Problem(f"not as the notebooks are: {written.names(stale)}\nnext: make colab")
        texts = written.wanted()
        for path in stale:
            if path in texts:
                write(path, texts[path])
            else:
                path.unlink()
    except Problem as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    print(f"written: {written.names(stale)}" if stale else "the Colab edition is as the notebooks are")
    return 0


if __name__ == "__main__":
    in_venv.enter(set_up=False)
    sys.exit(main("--check" in sys.argv[1:]))
