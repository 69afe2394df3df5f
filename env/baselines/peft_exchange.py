"""Adapters exchanged with Hugging Face's peft in both directions, and the logits compared:
`python3 -m env.baselines.peft_exchange practice smollm2 --out results/lora`.

Needs torch, transformers and peft in the Python that runs it; nothing is fetched from the internet. The example `peft_exchange` of
`gpulab-nn` is the other half.
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
import time
from pathlib import Path

from env.baselines import pages
from env.baselines.asked import processor
from env.command import answer, output
from env.console import ToolError, tool
from env.paths import ROOT

CARGO = ["cargo", "run", "--release", "--quiet", "-p", "gpulab-nn", "--example", "peft_exchange", "--"]
# Of the logits' change by the adapters.
MOST = 1e-2
NEXT = "compare names, the scale, and the order of q's and k's rows (crates/nn/src/lora/peft.rs)"
# What was seen: which experiment, what of it, a number, its unit.
Rows = list[tuple[str, str, float, str]]


def base(folder: Path):
    """The base model anew: peft changes the one that it is given."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32).eval()


def judged(rows: Rows, what: str, apart: float, moved: float) -> None:
    """Notes how far two programs' logits are apart, and how far the adapters moved them; the first is a small part of the second."""
    print(f"{what}: logits apart by {apart:.1e}, moved by the adapters by {moved:.1e}", flush=True)
    rows += [(what, "logits apart by", apart, "1"), (what, "logits moved by the adapters by", moved, "1")]
    if not apart < MOST * moved:
        raise ToolError(f"{what}: the adapters mean something else", NEXT)


def exchange(program: list[str], name: str, folder: Path) -> Rows:
    """Ours into peft, then peft's into ours."""
    import peft
    import torch
    from safetensors.torch import load_file

    answer([*program, "write", name, folder], "read its message above", cwd=ROOT)
    rows: Rows = []
    ours = load_file(folder / "ours" / "logits.safetensors")
    tokens = ours["tokens"].long()[None]

    def apart(a, b) -> float:
        return (a - b).abs().max().item()

    with torch.no_grad():
        plain = base(folder)(tokens).logits[0]
        adapted = peft.PeftModel.from_pretrained(base(folder), folder / "ours")(tokens).logits[0]
    largest = ours["base"].abs().max().item()
    print(f"{name} without adapters: logits apart by {apart(plain, ours['base']):.1e}, the largest is {largest:.1f}")
    rows.append((f"{name} without adapters", "logits apart by", apart(plain, ours["base"]), "1"))
    judged(rows, f"{name}, our adapters in peft", apart(adapted, ours["logits"]), apart(ours["logits"], ours["base"]))

    layers = list(range(1, base(folder).config.num_hidden_layers - 1))
    theirs(folder, folder / "theirs", tokens, 6, ["q_proj", "k_proj", "v_proj", "down_proj"], layers)
    found = answer([*program, "read", name, folder], "read its message above", cwd=ROOT).split()
    judged(rows, f"{name}, peft's adapters in ours", *map(float, found))
    return rows


def theirs(folder: Path, to: Path, tokens, rank: int, targets: list[str], layers: list[int]) -> None:
    """Adapters as peft writes them, and the logits that it computes with them."""
    import peft
    import torch
    from safetensors.torch import save_file

    config = peft.LoraConfig(
        r=rank, lora_alpha=9, target_modules=targets, layers_to_transform=layers, task_type="CAUSAL_LM"
    )
    torch.manual_seed(1)
    model = peft.get_peft_model(base(folder), config).eval()
    with torch.no_grad():
        for key, value in model.named_parameters():
            # Zeros would hide any mistake.
            if "lora_B" in key:
                value.copy_(0.1 * torch.randn_like(value))
        logits = model(tokens).logits[0]
    # The folder is gone tomorrow.
    model.peft_config["default"].base_model_name_or_path = "base"
    model.save_pretrained(to)
    # A page about the adapters in general.
    (to / "README.md").unlink(missing_ok=True)
    save_file({"logits": logits.contiguous()}, to / "logits.safetensors")


def fixture(program: list[str], to: Path) -> None:
    """Small adapters for the practice model, with the logits of the last token: a test of `gpulab-nn` reads them without Python."""
    import peft
    from safetensors.torch import load_file, save_file

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        answer([*program, "write", "practice", folder], "read its message above", cwd=ROOT)
        tokens = load_file(folder / "ours" / "logits.safetensors")["tokens"].long()[None]
        theirs(folder, to, tokens, 2, ["q_proj", "k_proj", "v_proj"], [1, 2])
    logits = load_file(to / "logits.safetensors")["logits"][-1:]
    save_file({"logits": logits.contiguous(), "tokens": tokens.float()}, to / "logits.safetensors")
    text = (
        f"# Adapters that peft {peft.__version__} has written\n\nFor the practice model (`ChatModel::practice`), with the logits of the last "
        "token that transformers and peft computed.\nMade by `python3 -m env.baselines.peft_exchange --fixture "
        f"{to}`; a test in `tests.rs` beside this folder reads them.\n"
    )
    (to / "README.md").write_text(text, encoding="utf-8")


def record(rows: Rows, out: Path, build: str) -> None:
    """The numbers as CSV, and a page that says where they come from."""
    import peft
    import torch
    import transformers

    cells = [[one, what, f"{value:.6g}", unit] for one, what, value, unit in rows]
    table = out / "peft.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["experiment", "what", "value", "unit"], *cells])
    facts = {
        "commit": output(["git", "rev-parse", "--short", "HEAD"]) or "unknown",
        "ended (UTC)": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "peft, transformers, torch": f"{peft.__version__}, {transformers.__version__}, {torch.__version__}",
        "CPU": f"{processor()}, {os.cpu_count()} cores",
        "our program": build,
    }
    page = pages.filled("peft", table, facts, rows=pages.lines(cells))
    table.with_suffix(".md").write_text(page, encoding="utf-8")


def main() -> int:
    """Both directions for each model."""
    parser = argparse.ArgumentParser(prog="python3 -m env.baselines.peft_exchange", description=__doc__)
    parser.add_argument("models", nargs="*", help="practice, smollm2 (`make model`)")
    parser.add_argument("--out", type=Path, help="a folder for peft.csv and peft.md")
    parser.add_argument("--fixture", type=Path, help="a folder for small adapters that a test reads")
    parser.add_argument("--program", help="the example, built already")
    parser.add_argument("--build", default="cargo's profile `release`", help="how it was built, for the page")
    chosen = parser.parse_args()
    try:
        import peft  # noqa: F401
        import torch  # noqa: F401
        from transformers.utils.logging import disable_progress_bar
    except ImportError as error:
        raise ToolError(f"{error}", "pip install torch transformers peft") from error
    disable_progress_bar()
    program = [chosen.program] if chosen.program else CARGO
    if chosen.fixture:
        fixture(program, chosen.fixture)
    rows: Rows = []
    for name in chosen.models:
        with tempfile.TemporaryDirectory() as folder:
            rows += exchange(program, name, Path(folder))
    if chosen.out:
        record(rows, chosen.out, chosen.build)
    return 0


if __name__ == "__main__":
    tool(main)
