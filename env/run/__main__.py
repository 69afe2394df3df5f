"""`make run`: executes the notebooks headless and judges them. `python3 -m env.run --help` lists the options."""

import sys

from env import in_venv

if __name__ == "__main__":
    in_venv.enter(set_up=not {"-h", "--help"} & set(sys.argv[1:]))
    from env.console import tool
    from env.run.main import main

    # 2: nothing could be run.
    tool(main, failed=2)
