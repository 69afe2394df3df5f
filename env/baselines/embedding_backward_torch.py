"""PyTorch's backward pass of an embedding, with the shape and the two draws of lesson 13.

`python3 -m env.baselines.embedding_backward_torch` prints a line per draw: ms of the pass, which sorts the positions and
fills the whole table's gradient with zeros first, ms of that filling alone, and whether two calls give the same bits.
Medians of nine samples of four calls by CUDA events, samples of both taken alternately.
"""

from __future__ import annotations

import statistics

import torch

from env.baselines.cuda_clock import timed

ROWS, WIDTH, POSITIONS = 131072, 4096, 32768
SAMPLES = 9


def draws() -> dict[str, torch.Tensor]:
    """Uniform rows, and rows whose rank's logarithm is uniform."""
    unit = torch.rand(POSITIONS, device="cuda", dtype=torch.float64)
    return {"uniform": (unit * ROWS).long(), "Zipf": ((ROWS + 1.0) ** unit - 1).long().clamp(max=ROWS - 1)}


def main() -> None:
    """Both draws."""
    torch.manual_seed(1)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}: {POSITIONS} positions, {ROWS} rows of {WIDTH}")
    gradient = torch.randn(POSITIONS, WIDTH, device="cuda")
    for name, index in draws().items():

        def backward(index: torch.Tensor = index) -> torch.Tensor:
            return torch.ops.aten.embedding_dense_backward(gradient, index, ROWS, -1, False)

        def zeros() -> torch.Tensor:
            return torch.zeros(ROWS, WIDTH, device="cuda")

        samples = {backward: [], zeros: []}
        for call in samples:
            timed(call, 3)
        for _ in range(SAMPLES):
            for call, ms in samples.items():
                ms.append(timed(call, 4))
        whole, filled = (statistics.median(ms) for ms in samples.values())
        same = torch.equal(backward(), backward())
        print(
            f"{name:>12}: {whole:.3f} ms, of which zeros {filled:.3f}; the same bits twice: {'yes' if same else 'no'}"
        )


if __name__ == "__main__":
    main()
