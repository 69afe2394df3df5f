"""A language model behind HTTP (`make serve`): builds the program with candle and the server, and calls it. What stands in ARGS goes to
the program: `make serve ARGS="--model FILE --port 8001"`.
"""

from __future__ import annotations

from env import in_venv, program
from env.console import tool

if __name__ == "__main__":
    in_venv.enter()
    tool(lambda: program.call([program.with_candle("serve"), "serve", *program.arguments()]))
