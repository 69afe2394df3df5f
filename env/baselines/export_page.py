"""The page beside a table of exported models: what ran where, latency and throughput over the batch, who was missing."""

from __future__ import annotations

import csv
from pathlib import Path

from env.baselines.ladder_page import machine

TEXT = """# The exported CNN on {gpu}

Written by `env/baselines/record_export.py`; nothing here is typed by hand.

| what | |
| --- | --- |
{facts}

The CNN of lesson 20 (random weights, f32) as an ONNX file. A call is waited for; inputs and outputs lie where it computes.
All take turns in one run, and outputs were held against the first one's before a time counted: `differs by` is the largest
difference over the largest output. CUDA is without TF32. The ratio is to ONNX Runtime's Python package on the same
provider, the median over the turns. [{table}]({table}) has all rows.

| who | batch | p50 µs | p99 µs | images a second | ratio | differs by |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
{rows}

Which provider took which nodes is what ONNX Runtime tells of the open session.

| who | opened in ms | again | engines | nodes |
| --- | ---: | ---: | --- | --- |
{sessions}

{absent}
"""


def page(table: Path, commit: str | None) -> str:
    """The page of that table."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    facts = machine(commit) | {
        "command": f"`python3 -m env.baselines.record_export --out {table.parent.name}/{table.name}`"
    }
    timed = [row for row in rows if row["batch"]]
    names = ("who", "batch", "p50_us", "p99_us", "examples_per_s", "ratio", "differs_by")
    opened = {row["who"]: row for row in timed if row["opened_ms"]}

    def missing(row: dict[str, str]) -> str:
        # A provider's reason begins with its name, candle's does not.
        named = row["nodes"].startswith(row["who"])
        return f"- {row['nodes']}" if named else f"- {row['who']} is missing: {row['nodes']}"

    absent = [missing(row) for row in rows if not row["batch"]]
    return (
        TEXT.format(
            gpu=f"an {facts['GPU']}",
            facts="\n".join(f"| {name} | {value} |" for name, value in facts.items()),
            table=table.name,
            rows="\n".join("| " + " | ".join(row[name] for name in names) + " |" for row in timed),
            sessions="\n".join(
                "| " + " | ".join(row[name] for name in ("who", "opened_ms", "again_ms", "engines", "nodes")) + " |"
                for row in opened.values()
            ),
            absent="Not there, each with what was said:\n\n" + "\n".join(absent) if absent else "",
        ).rstrip()
        + "\n"
    )
