"""The pages beside recorded tables: the text of each in `pages/`, filled in from its table."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

Row = dict[str, str]
Facts = dict[str, str]


def rows(table: Path) -> list[Row]:
    """A table's rows."""
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def lines(cells: Iterable[Iterable[str]]) -> str:
    """Rows of a page's table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)


def columns(row: Row, names: str) -> list[str]:
    """These cells of a row."""
    return [row[name] for name in names.split()]


def filled(text: str, table: Path, facts: Facts, **parts: str) -> str:
    """That text with these parts, and what every page has."""
    template = (Path(__file__).parent / "pages" / f"{text}.txt").read_text(encoding="utf-8")
    made = template.format(gpu=facts.get("GPU", ""), facts=lines(facts.items()), table=table.name, **parts)
    return made.rstrip() + "\n"


def beyond(errors: Path) -> str:
    """The rungs whose error is beyond twice a library's, and beyond a unit in the last place; the CPU is no library."""
    found = [
        f"{row['topic']} {row['rung']}"
        for row in rows(errors)
        if not row["topic"].startswith("#")
        and not row["peer"].startswith("cpu")
        and float(row["error"]) > max(2 * float(row["peer_error"]), 2.0**-23)
    ]
    return ", ".join(dict.fromkeys(found)) or "none"


def fastest(table: Path) -> list[list[str]]:
    """Of each topic and size the fastest row's name and speed, against its peers."""
    best: dict[tuple[str, str], list[Row]] = {}
    for row in rows(table):
        of_size = best.setdefault((row["topic"], row["size"]), [])
        if of_size and float(row["value"]) > float(of_size[0]["value"]):
            of_size.clear()
        if not of_size or row["rung"] == of_size[0]["rung"]:
            of_size.append(row)
    found = []
    for (topic, size), of_size in best.items():
        first = of_size[0]
        peers = "; ".join(f"{row['peer']}: {float(row['ratio']):.3f}" for row in of_size)
        found.append([topic, size, first["rung"], f"{float(first['value']):.1f} {first['unit']}", peers])
    return found


def ladders(table: Path, facts: Facts) -> str:
    """Each ladder's fastest rung against its peers."""
    errors = table.with_name(f"{table.stem}_errors.csv")
    return filled("ladders", table, facts, errors=errors.name, rows=lines(fastest(table)), beyond=beyond(errors))


def tiles(table: Path, facts: Facts) -> str:
    """Each program against Triton and the libraries."""
    return filled("tiles", table, facts, rows=lines(fastest(table)))


def decode(table: Path, facts: Facts) -> str:
    """Plans with their own constants, and PyTorch."""
    names = "plan queue kernels us_a_token tokens_per_s error share_of_copy"
    own = [columns(row, names) for row in rows(table) if row["constants"] in ("", row["plan"])]
    # One row for each, in order.
    return filled("decode", table, facts, rows="\n".join(dict.fromkeys(lines(own).splitlines())))


def training(table: Path, facts: Facts) -> str:
    """Each precision's step beside its peers, and its kernels."""
    every = rows(table)
    apart = {(row["precision"], row["what"]): row["value"] for row in every if row["metric"].startswith("largest")}
    right = {row["precision"]: row["value"] for row in every if row["metric"].startswith("test accuracy")}
    parts = [row for row in every if row["precision"] == "tf32" and row["unit"] == "µs" and row["metric"] != "step"]

    def step(row: Row) -> list[str]:
        spread, gap = (
            f"{float(row['p10']):.1f} to {float(row['p90']):.1f}",
            apart.get((row["precision"], row["what"]), ""),
        )
        return [row["precision"], row["what"], f"{float(row['value']):.1f}", spread, row["ratio"], gap]

    def longest(whose: str) -> list[Row]:
        return [row for row in parts if row["what"] == whose and row["metric"].startswith("kernel")][:12]

    ours = [row for row in parts if row["what"] == "ours"]
    alone = [row for row in parts if row["metric"].startswith("AdamW")]
    return filled(
        "training",
        table,
        facts,
        steps=lines(step(row) for row in every if row["metric"] == "step"),
        epochs=lines(
            [row["precision"], f"{float(row['value']):.4f}", f"{float(right[row['precision']]):.4f}"]
            for row in every
            if row["metric"] == "epoch"
        ),
        kernels=lines(
            [row["what"], row["metric"].removeprefix("kernel "), f"{float(row['value']):.1f}"]
            for row in [
                *ours,
                *longest("candle"),
                *longest("torch"),
                *longest("torch, max-autotune, graph"),
                *longest("torch, channels_last, max-autotune, graph"),
                *alone,
            ]
        ),
    )


def figures(every: list[Row], group: str) -> dict[tuple[str, str, str], str]:
    """Each row's value by its group, what it is of, and the metric."""
    return {(row[group], row["what"], row["metric"]): row["value"] for row in every}


def steps(every: list[Row], group: str, *metrics: str) -> str:
    """Each way's step: ms and their spread, tokens a second, the ratio, these other figures, and GiB at the peak where they are known."""
    known = figures(every, group)

    def step(row: Row) -> list[str]:
        key = (row[group], row["what"])
        memory = known.get((*key, "memory at the peak"))
        return [
            *key,
            f"{float(row['value']):.2f}",
            f"{float(row['p10']):.2f} to {float(row['p90']):.2f}",
            f"{float(known[(*key, 'tokens a second')]):,.0f}",
            row["ratio"],
            *(f"{float(known[(*key, metric)]):.3f}" for metric in metrics),
            f"{float(memory):.2f}" if memory else "",
        ]

    return lines(step(row) for row in every if row["metric"] == "a step")


def checks(every: list[Row], group: str, *told: str) -> str:
    """What was compared before, by how its metric begins."""
    return lines(columns(row, f"{group} what metric value") for row in every if row["metric"].startswith(told))


def lora_step(table: Path, facts: Facts) -> str:
    """Each way's step, and what was compared before."""
    every = rows(table)
    told = ("loss", "gradients", "the worst", "first loss", "last loss", "largest", "kernels")
    made = {"steps": steps(every, "work", "a step, by QLoRA's"), "checks": checks(every, "work", *told)}
    return filled("lora_step", table, facts, **made)


def candle_step(table: Path, facts: Facts) -> str:
    """Each way's step, what was compared before, and the step by kernel."""
    every = rows(table)
    known = figures(every, "batch")

    def kernel(row: Row) -> list[str]:
        name = row["metric"].removeprefix("kernel: ")
        count = known[(row["batch"], row["what"], f"launches: {name}")]
        return [name, f"{float(count):.0f}", f"{float(row['value']):.3f}"]

    return filled(
        "candle_step",
        table,
        facts,
        steps=steps(every, "batch"),
        checks=checks(every, "batch", "last loss", "largest", "kernels and copies"),
        kernels=lines([kernel(row) for row in every if row["metric"].startswith("kernel: ")][:20]),
    )


def export(table: Path, facts: Facts) -> str:
    """What ran where, latency and throughput over the batch, and who was missing."""
    every = rows(table)
    timed = [row for row in every if row["batch"]]
    opened = {row["who"]: row for row in timed if row["opened_ms"]}
    # A provider's reason begins with its name, candle's does not.
    absent = [
        f"- {row['nodes']}" if row["nodes"].startswith(row["who"]) else f"- {row['who']} is missing: {row['nodes']}"
        for row in every
        if not row["batch"]
    ]
    return filled(
        "export",
        table,
        facts,
        rows=lines(columns(row, "who batch p50_us p99_us examples_per_s ratio differs_by") for row in timed),
        sessions=lines(columns(row, "who opened_ms again_ms engines nodes") for row in opened.values()),
        absent="\n".join(["Not there, each with what was said:", "", *absent]) if absent else "",
    )
