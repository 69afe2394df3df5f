#!/usr/bin/env python3
"""`make run`: executes the notebooks headless and judges them. `python3 env/run.py --help` lists the options."""

import sys

import inside

if __name__ == "__main__":
    inside.enter(set_up=not {"-h", "--help"} & set(sys.argv[1:]))
    from runner import main as runner

    sys.exit(runner.main())
