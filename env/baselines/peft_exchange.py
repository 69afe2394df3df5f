"""Adapters exchanged with Hugging Face's peft in both directions, with the logits compared; then training steps of both, one after the
other on the same batch, with losses and times: `python3 -m env.baselines.peft_exchange practice smollm2 --steps 20 --out results/lora`.

Needs torch, transformers and peft in the Python that runs it; nothing is fetched from the internet. The example `peft_exchange` of
`gpulab-nn` is the other half.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from env.command import answer, output
from env.console import ToolError, tool
from env.paths import ROOT

CARGO = ["cargo", "run", "--release", "--quiet", "-p", "gpulab-nn", "--example", "peft_exchange", "--"]
# Of the logits' change by the adapters.
MOST = 1e-2
# Of the training: adapters beside all matrices of all layers, texts of one length.
RANK, TEXTS, LENGTH, RATE = 8, 4, 64, 1e-3
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
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


def processor_s(process: int) -> float:
    """Seconds of processor time that a process has taken: other programs on the machine change them less than the time that passed."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def train(program: list[str], name: str, folder: Path, steps: int) -> Rows:
    """The same steps by both, alternating: each waits while the other computes."""
    import peft
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(2)
    torch.set_num_threads(os.cpu_count() or 1)
    config = peft.LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=ALL, task_type="CAUSAL_LM")
    model = peft.get_peft_model(base(folder), config)
    model.save_pretrained(folder / "start")
    tokens = torch.randint(0, 256, (TEXTS, LENGTH))
    save_file({"tokens": tokens.float()}, folder / "batch.safetensors")
    learning = [value for value in model.parameters() if value.requires_grad]
    optimiser = torch.optim.AdamW(learning, lr=RATE, weight_decay=0.0)
    ours = subprocess.Popen(
        [*program, "train", name, folder], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert ours.stdin is not None and ours.stdout is not None
    seen: dict[str, list[tuple[float, ...]]] = {"ours": [], "peft's": []}
    with ours:
        for _ in range(steps):
            before = processor_s(ours.pid)
            ours.stdin.write("step\n")
            ours.stdin.flush()
            said = ours.stdout.readline().split()
            if len(said) != 2:
                raise ToolError("the example peft_exchange ended early", "read its message above")
            seen["ours"].append((float(said[0]), float(said[1]), 1e3 * (processor_s(ours.pid) - before)))
            started, before = time.perf_counter(), time.process_time()
            loss = model(input_ids=tokens, labels=tokens).loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            took = time.perf_counter() - started
            seen["peft's"].append((loss.item(), 1e3 * took, 1e3 * (time.process_time() - before)))
        ours.stdin.close()
    rows: Rows = []
    what = f"{name}, training"
    for whose, found in seen.items():
        rows.append((what, f"{whose} loss before the first step", found[0][0], "nats a token"))
        rows.append((what, f"{whose} loss before the last step", found[-1][0], "nats a token"))
        # The first step allocates, and reads the weights for the first time.
        for at, kind in ((1, "a step"), (2, "processor time of a step")):
            rows.append((what, f"{whose} {kind}, median", statistics.median(one[at] for one in found[1:]), "ms"))
    pairs = list(zip(seen["ours"], seen["peft's"], strict=True))
    apart = max(abs(a[0] - b[0]) for a, b in pairs)
    rows.append((what, "losses apart by", apart, "nats a token"))
    for at, kind in ((1, "speed"), (2, "speed by processor time")):
        ratio = statistics.median(b[at] / a[at] for a, b in pairs[1:])
        rows.append((what, f"{kind}, ours ÷ peft's, median of {steps - 1} pairs", ratio, "1"))
    rows.append((what, "numbers that learn", sum(value.numel() for value in learning), "1"))
    for row in rows:
        print(f"{row[0]}: {row[1]} {row[2]:.6g} {row[3]}", flush=True)
    moved = abs(seen["ours"][0][0] - seen["ours"][-1][0])
    if not apart < MOST * moved:
        raise ToolError(
            f"{what}: the losses are apart by {apart:.1e}, and moved by {moved:.1e}",
            "compare gradients and the optimiser's settings",
        )
    return rows


def record(rows: Rows, out: Path, steps: int, build: str) -> None:
    """The numbers as CSV, and a page that says where they come from."""
    import peft
    import torch
    import transformers

    with (out / "peft.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["experiment", "what", "value", "unit"])
        writer.writerows((one, what, f"{value:.6g}", unit) for one, what, value, unit in rows)
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    processor = next(
        (line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")), "?"
    )
    lines = [
        "# Adapters exchanged with Hugging Face's peft",
        "",
        "Written by `env/baselines/peft_exchange.py`; nothing here is typed by hand. The numbers are in [peft.csv](peft.csv).",
        "",
        "| what | |",
        "| --- | --- |",
        f"| commit | {output(['git', 'rev-parse', '--short', 'HEAD']) or 'unknown'} |",
        f"| ended (UTC) | {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} |",
        f"| peft, transformers, torch | {peft.__version__}, {transformers.__version__}, {torch.__version__} |",
        f"| CPU | {processor}, {os.cpu_count()} cores, {os.getloadavg()[0]:.0f} processes at work at the end |",
        f"| our program | {build} |",
        (
            f"| training | adapters of rank {RANK} beside all matrices of all layers, {TEXTS} texts of {LENGTH} tokens, f32, "
            f"AdamW, {steps} steps of each, alternating |"
        ),
        "",
        "| experiment | what | value | unit |",
        "| --- | --- | --- | --- |",
        *(f"| {one} | {what} | {value:.6g} | {unit} |" for one, what, value, unit in rows),
        "",
        (
            "Both programs computed on the CPU, interleaved, while other programs were at work on it: the times are figures of that hour, not a "
            "comparison on an idle machine. Processor time counts what a program's own threads took."
        ),
        "",
    ]
    (out / "peft.md").write_text("\n".join(lines), encoding="utf-8")


def main() -> int:
    """Both directions for each model; the steps for the last one."""
    parser = argparse.ArgumentParser(prog="python3 -m env.baselines.peft_exchange", description=__doc__)
    parser.add_argument("models", nargs="*", help="practice, smollm2 (`make model`)")
    parser.add_argument("--steps", type=int, default=0, help="training steps of the last model, by each of the two")
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
    for at, name in enumerate(chosen.models, 1):
        with tempfile.TemporaryDirectory() as folder:
            rows += exchange(program, name, Path(folder))
            if chosen.steps > 1 and at == len(chosen.models):
                rows += train(program, name, Path(folder), chosen.steps)
    if chosen.out:
        record(rows, chosen.out, chosen.steps, chosen.build)
    return 0


if __name__ == "__main__":
    tool(main)
