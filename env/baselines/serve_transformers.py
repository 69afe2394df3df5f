"""Hugging Face transformers' side of the server's throughput: continuous batching of a Llama of Llama-3.2-1B's shape, random weights, bf16.

`python3 -m env.baselines.serve_transformers [--out serve_transformers.csv] [--clients 1,64] [--prompt 512] [--answer 128] [--requests 4]` has
`generate_batch` answer clients × requests random prompts, no HTTP between: eager and with CUDA graphs, each with the settings that it finds for
itself. The peer of `gpulab serve --device cuda --random llama-1b` as `record_serving` asks it: as many texts at a time as there are clients.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import torch
import transformers
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

from env.baselines import recorder

ROUNDS = 2
WAYS: dict[str, dict[str, object]] = {
    "sdpa": {"use_cuda_graph": False},
    "sdpa, CUDA graphs": {"use_cuda_graph": True},
    "its own choice": {},
}


def model() -> LlamaForCausalLM:
    """The shape, with weights as transformers draws them."""
    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        vocab_size=128256,
        max_position_embeddings=2048,
        rope_theta=500000.0,
        tie_word_embeddings=True,
    )
    torch.manual_seed(1)
    with torch.device("cuda"):
        made = LlamaForCausalLM(config).to(torch.bfloat16)
    made.set_attn_implementation("sdpa")
    return made.eval()


def answered(
    llama: LlamaForCausalLM, prompts: list[list[int]], answer: int, clients: int, way: dict[str, object]
) -> float:
    """Answered tokens per second of one call; cache and graphs are those of the call before."""
    generation = GenerationConfig(
        max_new_tokens=answer, min_new_tokens=answer, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    batching = ContinuousBatchingConfig(max_requests_per_batch=clients, allow_block_sharing=False, **way)
    torch.cuda.synchronize()
    start = time.perf_counter()
    told = llama.generate_batch(
        prompts, generation_config=generation, continuous_batching_config=batching, persistent_manager=True
    )
    seconds = time.perf_counter() - start
    tokens = sum(len(one.generated_tokens) for one in told.values())
    assert tokens == len(prompts) * answer, f"{tokens} tokens of {len(prompts)} answers"
    return tokens / seconds


def main() -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("serve_transformers.csv"))
    parser.add_argument("--clients", default="1,64")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--answer", type=int, default=128)
    parser.add_argument("--requests", type=int, default=4)
    parser.add_argument("--ways", default="")
    asked = parser.parse_args()
    llama = model()
    rows = ["time,commit,machine,driver,command,server,way,clients,what,value,unit,samples,p10,p90"]
    facts = recorder.machine(os.environ.get("GPULAB_COMMIT"))
    typed = " ".join(["python3 -m env.baselines.serve_transformers", *sys.argv[1:]])
    stamp = ",".join([facts["ended (UTC)"], facts["commit"], facts["GPU"], facts["driver"], f'"{typed}"'])
    name = f"transformers {transformers.__version__}, PyTorch {torch.__version__}"
    for clients in map(int, asked.clients.split(",")):
        count = clients * asked.requests
        prompts = torch.randint(0, 128000, (count, asked.prompt), generator=torch.Generator().manual_seed(clients))
        for way, settings in WAYS.items():
            if asked.ways not in way:
                continue
            try:
                answered(llama, prompts.tolist(), asked.answer, clients, settings)
                samples = [answered(llama, prompts.tolist(), asked.answer, clients, settings) for _ in range(ROUNDS)]
            except Exception as error:  # noqa: BLE001 - a way that cannot run here is named, and the others go on
                print(f"{clients} clients, {way}: not run: {type(error).__name__}: {str(error)[:300]}")
                continue
            finally:
                llama.destroy_cached_continuous_batching_manager()
            median = statistics.median(samples)
            print(
                f"{clients} clients, {way}: {median:.0f} tokens/s ({min(samples):.0f} to {max(samples):.0f})",
                flush=True,
            )
            rows.append(
                f'{stamp},"{name}","{way}",{clients},answered tokens,{median:.1f},1/s,{ROUNDS},'
                f"{min(samples):.1f},{max(samples):.1f}"
            )
    asked.out.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
