"""PyTorch's side of the ladders: operations as programs write them, eager and compiled, on the arrays of `examples/record_ladders`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from env.baselines.cuda_clock import timed

SAMPLE_MS = 1.0
WARM_UP_MS = 10.0
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "i32": torch.int32, "u32": torch.int32}
HEAD = 128
# As a part of the largest number. Eager chains of bf16 round after each operation, a generated kernel at its end.
NEAR = 2.0**-5
# A relative error beyond this is a mistake.
WRONG = 0.02
# As the kernels' launches have it.
EPSILON = {"layer_norm": 1e-5, "rms_norm": 1e-5, "residual_rms_norm": 1e-6}

Tensors = list[torch.Tensor]
# A topic's work on one set of arrays: what to call, again and again; it gives the results.
Call = Callable[[], Tensors]
# Makes it, from the topic, the size and the arrays.
Make = Callable[[str, list[int], Tensors], Call]


class Job:
    """One topic at one size: its work on each set of arrays, and its error. `others` do the same in another way."""

    def __init__(self, name: str, calls: list[Call], exact: list[list[list[int]]], reference: torch.Tensor) -> None:
        self.name = name
        self.others: list[Job] = []
        self.calls = calls
        self.turn = 0
        self.error = error(calls, exact, reference)
        self.repeats = 1
        for _ in range(3):
            few = self.timed(self.repeats)
            self.repeats = max(1, round(SAMPLE_MS / few))
            self.warm_ups = max(1, round(WARM_UP_MS / few))

    def call(self) -> None:
        """The next one, on the next set of arrays."""
        self.calls[self.turn % len(self.calls)]()
        self.turn += 1

    def timed(self, calls: int) -> float:
        """The ms of a call, the mean of so many."""
        return timed(self.call, calls)

    def sample(self) -> float:
        """One sample. Calls that are not counted come first: the GPU has worked for another process, and then rested for
        a moment, after which it clocks higher for a while than for work that follows other work. The clock starts behind
        them in the queue: on an idle GPU it would also count what Python does before the first kernel, 0.1 to 0.2 ms where
        a call makes tensor descriptors."""
        for _ in range(self.warm_ups):
            self.call()
        return self.timed(self.repeats)


def error(calls: list[Call], exact: list[list[list[int]]], reference: torch.Tensor) -> float:
    """‖given − exact‖ ÷ ‖exact‖ over the pieces (output, from, count) of each set of arrays that has some."""
    off, place = 0.0, 0
    for call, pieces in zip(calls, exact, strict=False):
        given = call()
        for output, start, count in pieces:
            piece = given[output].flatten()[start : start + count].double()
            off += (piece - reference[place : place + count]).square().sum().item()
            place += count
    return (off / reference.square().sum().item()) ** 0.5 if off else 0.0


def load(path: Path, dtype: torch.dtype, count: int) -> torch.Tensor:
    return torch.from_file(str(path), shared=False, size=count, dtype=dtype).cuda()


def release() -> None:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


class Partner:
    """What answers the program's lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job: Job | None = None

    def answer(self, line: str) -> str:
        """The ms of a sample to `go` (of another way to `go 1`), else what will be timed."""
        if line == "go":
            return f"{self.job.sample():.6f}"
        if line.startswith("go "):
            return f"{self.job.others[int(line[3:]) - 1].sample():.6f}"
        self.job = None
        release()
        asked = json.loads(line)
        why = "it has nothing for that"
        try:
            self.job = self.prepare(asked)
        except (RuntimeError, ValueError, AttributeError) as error:  # such as short memory: it is left out
            why = str(error)
        if self.job is None:
            print(f"PyTorch: left out at {asked['topic']}: {why}", file=sys.stderr)
            return "{}"
        ways = [{"name": job.name, "error": job.error} for job in (self.job, *self.job.others)]
        return json.dumps({**ways[0], "others": ways[1:]})

    def prepare(self, asked: dict) -> Job | None:
        """What is asked for; None where there is nothing."""
        return prepare(asked, self.folder)


def prepare(asked: dict, folder: Path) -> Job | None:
    """The topic's work on the arrays in that folder; None for a topic that it does not have."""
    make = TOPICS.get(asked["topic"])
    if make is None:
        return None
    ways = {NAMES.get(asked["topic"], "torch"): make, **OTHERS.get(asked["topic"], {})}
    return jobs(asked, folder, ways)


def jobs(asked: dict, folder: Path, ways: dict[str, Make]) -> Job:
    """These ways to do it, by name, on the arrays in that folder; the first one has the others."""
    torch.backends.cuda.matmul.allow_tf32 = False
    sets = [
        [load(folder / f"{number}_{at}.bin", DTYPES[dtype], count) for at, (dtype, count) in enumerate(asked["inputs"])]
        for number in range(asked["sets"])
    ]
    pieces = asked["exact"]
    reference = load(folder / "exact.bin", torch.float64, sum(count for of_set in pieces for _, _, count in of_set))

    def job(name: str, make: Make) -> Job:
        return Job(name, [make(asked["topic"], asked["size"], inputs) for inputs in sets], pieces, reference)

    (name, make), *others = ways.items()
    first = job(name, make)
    for name, make in others:
        try:
            first.others.append(job(name, make))
        except Exception as error:  # noqa: BLE001 - such as a package that is not there, or what its compiler says
            print(f"{name}: left out at {asked['topic']}: {error}", file=sys.stderr)
            release()
    return first


def vector_add(_topic: str, _size: list[int], inputs: Tensors) -> Call:
    a, b = inputs
    out = torch.empty_like(a)
    return lambda: [torch.add(a, b, out=out)]


def reduction(_topic: str, _size: list[int], inputs: Tensors) -> Call:
    out = torch.empty(1, device="cuda")
    return lambda: [torch.sum(inputs[0], 0, keepdim=True, out=out)]


def matmul(_topic: str, size: list[int], inputs: Tensors) -> Call:
    m, n, k = size
    a, b = inputs[0].view(m, k), inputs[1].view(k, n)
    out = torch.empty(m, n, device="cuda", dtype=a.dtype)
    return lambda: [torch.matmul(a, b, out=out)]


def embedding(_topic: str, size: list[int], inputs: Tensors) -> Call:
    rows, width, _ = size
    table, index = inputs[0].view(rows, width), inputs[1].long()
    return lambda: [F.embedding(index, table)]


def sparse(topic: str, size: list[int], inputs: Tensors) -> Call:
    """PyTorch's CSR tensor, whose product is cuSPARSE's."""
    starts, indices, values, dense = inputs
    vector = topic.startswith("spmv")
    columns = size[1] if vector else size[0]
    a = torch.sparse_csr_tensor(starts, indices, values, size=(size[0], columns))
    b = dense if vector else dense.view(columns, size[1])
    return lambda: [a @ b]


def two_four(_topic: str, size: list[int], inputs: Tensors) -> Call:
    """cuSPARSELt's product, of the matrix that the course's values and metadata stand for (`word_of` in `sparse.rs`).

    Of b in rows and b in columns, each with the default and with the algorithm that cuSPARSELt's own search finds, the
    fastest takes part.
    """
    m, n, k = size
    values, words, b = inputs
    row, column = torch.arange(m, device="cuda")[:, None], 4 * torch.arange(k // 4, device="cuda")[None, :]
    word = (row // 16 * (k // 64) + column // 64) * 32 + row % 8 * 4 + column % 64 // 16
    codes = words[word] >> (row % 16 // 8 * 16 + column % 16)
    places = torch.stack((codes & 3, codes >> 2 & 3), 2).long()
    dense = torch.zeros(m, k // 4, 4, device="cuda", dtype=values.dtype).scatter_(2, places, values.view(m, k // 4, 2))
    a = torch.sparse.SparseSemiStructuredTensorCUSPARSELT.from_dense(dense.view(m, k))
    b = b.view(k, n)
    calls: list[Call] = []
    for b_as in (b, b.t().contiguous().t()):
        found = torch._cslt_sparse_mm_search(a.packed, b_as)
        calls += [
            lambda b=b_as: [torch.mm(a, b)],
            lambda b=b_as, alg=found: [torch._cslt_sparse_mm(a.packed, b, alg_id=alg)],
        ]
    # The first calls of a way are not counted: they make its plan.
    times = [min(timed(call, 3) for _ in range(4)) for call in calls]
    print(f"cuSPARSELt at {m}, {n}, {k}: {[round(ms, 4) for ms in times]} ms", file=sys.stderr)
    return calls[times.index(min(times))]


def softmax(_topic: str, size: list[int], inputs: Tensors) -> Call:
    x = inputs[0].view(*size)
    return lambda: [torch.softmax(x, -1)]


def norm(topic: str, size: list[int], inputs: Tensors) -> Call:
    x, width, epsilon = inputs[0].view(*size), (size[1],), EPSILON[topic]
    if topic == "layer_norm":
        return lambda: [F.layer_norm(x, width, inputs[1], inputs[2], epsilon)]
    return lambda: [F.rms_norm(x, width, inputs[1], epsilon)]


def residual_rms_norm(topic: str, size: list[int], inputs: Tensors) -> Call:
    """The chain of operations of Hugging Face's `LlamaRMSNorm`, behind the addition."""
    x, residual, weight, epsilon = inputs[0].view(*size), inputs[1].view(*size), inputs[2], EPSILON[topic]

    def call() -> Tensors:
        total = x + residual
        wide = total.float()
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
        return [weight * normed.to(x.dtype), total]

    return call


def residual_then_norm(topic: str, size: list[int], inputs: Tensors) -> Call:
    """Two operations: the sum is stored, and read again by one that knows the whole norm."""
    x, residual, width, epsilon = inputs[0].view(*size), inputs[1].view(*size), (size[1],), EPSILON[topic]

    def call() -> Tensors:
        total = x + residual
        return [F.rms_norm(total, width, inputs[2], epsilon), total]

    return call


def rope(_topic: str, size: list[int], inputs: Tensors) -> Call:
    """As Hugging Face's `apply_rotary_pos_emb` has it: the halves of a head change places, one of them negated."""
    rows = size[0]
    q, k = (x.view(rows, -1, HEAD) for x in inputs[:2])
    cosine, sine = (torch.cat((x.view(rows, -1), x.view(rows, -1)), -1).to(q.dtype)[:, None, :] for x in inputs[2:4])

    def turned(x: torch.Tensor) -> torch.Tensor:
        halves = torch.cat((-x[..., HEAD // 2 :], x[..., : HEAD // 2]), -1)
        return x * cosine + halves * sine

    return lambda: [turned(q), turned(k)]


def compiled(make: Make) -> Make:
    """The same operations under `torch.compile`, whose generated kernels fuse what stands together.

    The first call of each shape compiles and tunes, and its results are compared with those of the eager operations:
    both come before anything is timed.
    """

    def made(topic: str, size: list[int], inputs: Tensors) -> Call:
        eager = make(topic, size, inputs)
        call = torch.compile(eager, mode="max-autotune-no-cudagraphs", dynamic=False)
        begin = time.perf_counter()
        given = call()
        torch.cuda.synchronize()
        took = time.perf_counter() - begin
        far = max(relative_difference(*pair) for pair in zip(given, eager(), strict=True))
        print(f"torch.compile of {topic}: {took:.1f} s, off eager by {far:.1e} of the largest number", file=sys.stderr)
        if not far <= NEAR:
            raise ValueError(f"compiled and eager results differ by {far:.1e} of the largest number")
        return call

    return made


def relative_difference(given: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, as a part of the largest number; infinite where one of them is none."""
    if given.shape != expected.shape or given.dtype != expected.dtype:
        raise ValueError(f"{given.shape} of {given.dtype} in place of {expected.shape} of {expected.dtype}")
    return ((given - expected).abs().max() / expected.abs().max()).nan_to_num(nan=float("inf")).item()


def attention(backend: SDPBackend) -> Make:
    """PyTorch's fused attention by one of its backends, which it is held to."""

    def make(topic: str, size: list[int], inputs: Tensors) -> Call:
        q, k, v = (x.view(1, *size) for x in inputs)

        def call() -> Tensors:
            with sdpa_kernel(backend):
                return [F.scaled_dot_product_attention(q, k, v, is_causal=topic.endswith("_causal"))]

        return call

    return make


def error_of_attention(work: Callable[..., torch.Tensor], width: int, causal: bool) -> float:
    """‖given − exact‖ ÷ ‖exact‖ at a length that no tile divides; exact is the formula in f64."""
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 1, 333, 3, width, device="cuda", dtype=torch.bfloat16)
    wide = (x.transpose(1, 2).double() for x in (q, k, v))
    exact = F.scaled_dot_product_attention(*wide, is_causal=causal).transpose(1, 2)
    return ((work(q, k, v, causal=causal).double() - exact).norm() / exact.norm()).item()


def flash_attention_4(topic: str, size: list[int], inputs: Tensors) -> Call:
    """The forward pass of the package flash-attn-4, whose kernel for this GPU CuTe DSL compiles at the first call.

    It names tokens before heads. Of arrays that lie so, and of ours, whose heads lie one behind the other, the faster
    take part.
    """
    from flash_attn.cute import flash_attn_func

    def work(*qkv: torch.Tensor, causal: bool) -> torch.Tensor:
        given = flash_attn_func(*qkv, causal=causal)
        return given[0] if isinstance(given, tuple) else given

    causal = topic.endswith("_causal")
    if not (off := error_of_attention(work, size[-1], causal)) <= WRONG:  # nor a NaN
        raise RuntimeError(f"wrong by {off:.1e} of the result at an awkward size")
    heads_first = [x.view(1, *size).transpose(1, 2) for x in inputs]
    tokens_first = [x.contiguous() for x in heads_first]
    calls: list[Call] = [
        lambda qkv=qkv: [work(*qkv, causal=causal).transpose(1, 2)] for qkv in (heads_first, tokens_first)
    ]
    times = [min(timed(call, 3) for _ in range(4)) for call in calls]
    print(f"flash-attn-4 at {topic} {size}: {[round(ms, 4) for ms in times]} ms", file=sys.stderr)
    return calls[times.index(min(times))]


def attention_backward(backend: SDPBackend) -> Make:
    """The backward pass of the same alone: the forward pass is done once, before."""

    def make(topic: str, size: list[int], inputs: Tensors) -> Call:
        q, k, v = (inputs[at].view(1, *size).detach().requires_grad_() for at in range(3))
        gradient = inputs[4].view(1, *size)
        with sdpa_kernel(backend):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=topic.endswith("_causal"))
        return lambda: list(torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))

    return make


FLASH = attention(SDPBackend.FLASH_ATTENTION)
FLASH_BACKWARD = attention_backward(SDPBackend.FLASH_ATTENTION)
# Whose work it is, where the name of PyTorch says little.
NAMES = {
    **dict.fromkeys(
        ("flash_attention", "flash_attention_causal", "flash_backward", "flash_backward_causal"), "FlashAttention-2"
    ),
    **dict.fromkeys(["spmv", "spmv_power_law", "spmm"], "cuSPARSE by torch"),
    "two_four": "cuSPARSELt by torch",
}
# Other ways, timed beside the first.
FORWARD: dict[str, Make] = {
    "cuDNN": attention(SDPBackend.CUDNN_ATTENTION),
    "FlashAttention-4 (CuTe DSL)": flash_attention_4,
}
CUDNN_BACKWARD: dict[str, Make] = {"cuDNN": attention_backward(SDPBackend.CUDNN_ATTENTION)}
OTHERS: dict[str, dict[str, Make]] = {
    "softmax": {"torch.compile": compiled(softmax)},
    "layer_norm": {"torch.compile": compiled(norm)},
    "rms_norm": {"torch.compile": compiled(norm)},
    "residual_rms_norm": {"torch F.rms_norm": residual_then_norm, "torch.compile": compiled(residual_rms_norm)},
    "rope": {"torch.compile": compiled(rope)},
    "flash_attention": FORWARD,
    "flash_attention_causal": FORWARD,
    "flash_backward": CUDNN_BACKWARD,
    "flash_backward_causal": CUDNN_BACKWARD,
}
TOPICS: dict[str, Make] = {
    "vector_add": vector_add,
    "reduction": reduction,
    "matmul": matmul,
    "matmul_bf16": matmul,
    "embedding": embedding,
    "spmv": sparse,
    "spmv_power_law": sparse,
    "spmm": sparse,
    "two_four": two_four,
    "softmax": softmax,
    "layer_norm": norm,
    "rms_norm": norm,
    "residual_rms_norm": residual_rms_norm,
    "rope": rope,
    "flash_attention": FLASH,
    "flash_attention_causal": FLASH,
    "flash_backward": FLASH_BACKWARD,
    "flash_backward_causal": FLASH_BACKWARD,
}
