"""Time a Llama on this CPU beside llama.cpp, on the same GGUF file and cores, and write results/cpu/llama_cpp.csv and its page.

    python3 -m env.baselines.record_llama_cpp FOLDER

FOLDER is llama.cpp's, built in its folder `build` as static libraries:

    cmake -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF && cmake --build build --target llama

Both sides load the model once, and are asked alternately: a prompt's time, or a step's with one more token for each of 1 or 8 texts. The
ratio of a pair is llama.cpp's time over ours (above 1: ours is faster); the table has the medians. The page says, too, what the
machine allows one text: the rate at which these cores read memory, over the weights' bytes. Where others use the machine, the
clock times them, too.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import os
import statistics
from pathlib import Path

from env import in_venv, paths
from env.baselines import pages
from env.baselines.asked import Asked, processor, usable_cores
from env.command import output, run
from env.console import ToolError, tool
from env.model import FILE, FOLDER

PEER = paths.ENV / "baselines" / "llama_cpp_peer.cpp"
OWN = paths.GENERATED / "llama_cpp"
OUT = paths.ROOT / "results" / "cpu" / "llama_cpp.csv"
EXAMPLE = "llama_speed"
LIBRARIES = ("src/libllama.a", "ggml/src/libggml.a", "ggml/src/libggml-cpu.a", "ggml/src/libggml-base.a")
# What is asked, what it is called, and how many tokens an answer's milliseconds are for.
CASES = {
    "prefill-128": ("prefill 128", "prompt of 128 tokens", 128),
    "prefill-512": ("prefill 512", "prompt of 512 tokens", 512),
    "decode-128": ("decode 1 128 8", "1 text, 128 tokens before", 1),
    "decode-512": ("decode 1 512 8", "1 text, 512 tokens before", 1),
    "decode-8": ("decode 8 64 2", "8 texts, 64 tokens before each", 8),
}
COLUMNS = ("case", "side", "value", "unit", "pairs", "p10", "p90")


def peer(folder: Path) -> Path:
    """llama.cpp's side, compiled against that folder."""
    libraries = [folder / "build" / name for name in LIBRARIES]
    missing = [str(one) for one in [folder / "include" / "llama.h", *libraries] if not one.is_file()]
    if missing:
        raise ToolError(
            f"there is no {missing[0]}", "build llama.cpp as this command's --help says, and name its folder"
        )
    OWN.mkdir(parents=True, exist_ok=True)
    program = OWN / "peer"
    includes = [f"-I{folder / 'include'}", f"-I{folder / 'ggml' / 'include'}"]
    command = ["g++", "-O3", "-march=native", "-fopenmp", *includes, PEER, "-o", program]
    command += [*libraries, "-lpthread", "-ldl", "-lm"]
    run(command, "llama.cpp's side was not compiled", "look at the compiler's message above")
    return program


def own() -> Path:
    """Our side, as `make serve` builds it."""
    target = paths.TARGET / "candle"
    command = ["cargo", "build", "--quiet", "--release", "-p", "gpulab-nn", "--example", EXAMPLE]
    environment = {"CARGO_TARGET_DIR": str(target)}
    run(command, "our side was not built", "look at the compiler's message above", env=environment)
    return target / "release" / "examples" / EXAMPLE


def pairs(sides: list[Asked], question: str, count: int) -> list[list[float]]:
    """The milliseconds of both sides, alternately; every second turn the other way round."""
    for side in sides:
        side.ask(question)
    turns = []
    for turn in range(count):
        order = sides if turn % 2 == 0 else sides[::-1]
        given = [side.ask(question)[0] for side in order]
        turns.append(given if turn % 2 == 0 else given[::-1])
    return turns


def rows(turns: list[list[float]], case: str, tokens: int) -> list[dict[str, object]]:
    """The medians of a case: both rates, and the ratio of the pairs."""

    def row(side: str, values: list[float], unit: str) -> dict[str, object]:
        low, *_, high = statistics.quantiles(values, n=10)
        given = [f"{value:.4g}" for value in (statistics.median(values), low, high)]
        return {"case": case, "side": side, "unit": unit, "pairs": len(turns)} | dict(
            zip(("value", "p10", "p90"), given, strict=True)
        )

    rates = [[1e3 * tokens / turn[side] for turn in turns] for side in (0, 1)]
    ratio = [theirs / ours for ours, theirs in turns]
    return [row("gpulab", rates[0], "tokens/s"), row("llama.cpp", rates[1], "tokens/s"), row("ratio", ratio, "×")]


def main() -> None:
    """Measures all cases, and writes the table and its page."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("folder", type=Path, help="llama.cpp's folder")
    made.add_argument("--cases", default=",".join(CASES), help=f"which to time; default: {', '.join(CASES)}")
    made.add_argument("--pairs", type=int, default=25, help="how many times both sides are asked")
    made.add_argument("--program", type=Path, help="our side, where it was built elsewhere")
    made.add_argument(
        "--model", type=Path, default=FOLDER / FILE, help="the GGUF file; default: what `make model` fetches"
    )
    made.add_argument("--out", type=Path, default=OUT, help="the table to write")
    chosen = made.parse_args()
    if chosen.pairs < 2:
        raise ToolError(f"{chosen.pairs} pairs have no spread", "give --pairs of at least 2")
    if not chosen.model.is_file():
        raise ToolError(f"there is no {chosen.model}", "`make model` fetches it, or name another with --model")
    unknown = [name for name in chosen.cases.split(",") if name not in CASES]
    if unknown:
        raise ToolError(f"there is no case `{unknown[0]}`", f"name some of {', '.join(CASES)}")
    cases = [CASES[name] for name in chosen.cases.split(",")]
    cores = usable_cores()
    commands = [
        [str(chosen.program or own()), str(chosen.model)],
        [str(peer(chosen.folder)), str(chosen.model), str(len(cores))],
    ]
    load = [f"{os.getloadavg()[0]:.1f}"]
    sides = [Asked(command, cores) for command in commands]
    table = []
    for question, case, tokens in cases:
        table += rows(pairs(sides, question, chosen.pairs), case, tokens)
        print(*(f"{row['side']} {row['value']} {row['unit']}" for row in table[-3:]), f"({case})", sep="  ", flush=True)
    weights, rate = sides[0].ask("bytes")[0], sides[1].ask("read")[0]
    for side in sides:
        side.close()
    load.append(f"{os.getloadavg()[0]:.1f}")
    commit = output(["git", "rev-parse", "--short", "HEAD"]) or "unknown"
    facts = {
        "machine": f"{processor()}, cores used: {len(cores)}",
        "time": "of a clock",
        "model": f"{chosen.model.name}, {weights / 1e6:.1f} MB of weights",
        "commit": commit.strip(),
        "ended (UTC)": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "load of the machine before and after (tasks that run or want to)": " and ".join(load),
        "command": f"`python3 -m env.baselines.record_llama_cpp FOLDER --pairs {chosen.pairs} --cases {chosen.cases}`",
        "read rate of these cores": f"{rate:.1f} GB/s, so at most {1e9 * rate / weights:.0f} tokens/s for one text",
    }
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    with chosen.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    cells = [
        [str(ours["case"]), *(str(one["value"]) for one in (ours, theirs, ratio)), f"{ratio['p10']} to {ratio['p90']}"]
        for ours, theirs, ratio in zip(table[::3], table[1::3], table[2::3], strict=True)
    ]
    page = pages.filled("llama_cpp", chosen.out, facts, rows=pages.lines(cells))
    chosen.out.with_suffix(".md").write_text(page, encoding="utf-8")
    print(f"wrote {chosen.out}")


if __name__ == "__main__":
    in_venv.enter(set_up=False)
    tool(main)
