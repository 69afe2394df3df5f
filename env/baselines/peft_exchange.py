"""Adapters exchanged with Hugging Face's peft in both directions, and the logits compared: `python3 -m env.baselines.peft_exchange`.

Needs torch, transformers and peft in the Python that runs it; nothing is fetched from the internet. The example `peft_exchange` of
`gpulab-nn` is the other half.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from env.console import ToolError, tool
from env.paths import ROOT

CARGO = ["cargo", "run", "--release", "--quiet", "-p", "gpulab-nn", "--example", "peft_exchange", "--"]
# Of the logits' change by the adapters.
MOST = 1e-2


def rust(word: str, folder: Path) -> None:
    """Runs the other half."""
    if subprocess.run([*CARGO, word, str(folder)], cwd=ROOT, check=False).returncode != 0:
        raise ToolError(f"the example peft_exchange did not {word} {folder}", "read its own message above")


def main() -> int:
    """Ours into peft, then peft's into ours."""
    try:
        import peft
        import torch
        from safetensors.torch import load_file, save_file
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise ToolError(f"{error}", "pip install torch transformers peft") from error
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rust("write", folder)

        def base():  # peft changes the model that it is given
            return AutoModelForCausalLM.from_pretrained(folder / "base", torch_dtype=torch.float32)

        ours = load_file(folder / "ours" / "logits.safetensors")
        tokens = ours["tokens"].long()[None]
        with torch.no_grad():
            plain = base()(tokens).logits[0]
            adapted = peft.PeftModel.from_pretrained(base(), folder / "ours")(tokens).logits[0]
        moved = (ours["logits"] - ours["base"]).abs().max().item()
        apart = (adapted - ours["logits"]).abs().max().item()
        print(f"the base model: logits apart by {(plain - ours['base']).abs().max().item():.2e}")
        print(f"our adapters in peft {peft.__version__}: apart by {apart:.2e}, moved by the adapters by {moved:.2e}")
        if not apart < MOST * moved:
            raise ToolError(
                "our adapters mean something else to peft", "compare names and the order of q's and k's rows"
            )

        config = peft.LoraConfig(
            r=6,
            lora_alpha=9,
            target_modules=["q_proj", "k_proj", "v_proj", "down_proj"],
            layers_to_transform=[1, 2],
            task_type="CAUSAL_LM",
        )
        torch.manual_seed(1)
        model = peft.get_peft_model(base(), config).eval()
        with torch.no_grad():
            for key, value in model.named_parameters():
                if "lora_B" in key:
                    value.copy_(0.1 * torch.randn_like(value))
            logits = model(tokens).logits[0]
        model.save_pretrained(folder / "theirs")
        save_file({"logits": logits.contiguous()}, folder / "theirs" / "logits.safetensors")
        rust("read", folder)
    return 0


if __name__ == "__main__":
    tool(main)
