"""Bound the speed of boards that are not at hand, by counting cycles and bytes.  Nothing here is measured on a board.

    python benchmarks/board_model.py            markdown
    python benchmarks/board_model.py --json

Two bounds per board and model: how fast its cores can run the inner loops of the aarch64 kernels (llvm-mca), and how
fast its memory can deliver the bytes of a token.  The lesser is what to expect at most.  The assumptions are printed
under the table.  --kernels names another copy of pyx/kernels, to compare a change before it is made.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import mca
from benchmarks.make_model import SHAPES, Shape

MODELS = ("2b-4t", "large", "falcon-e-1b")
GROUPED = ("bonsai-1.7b", "bonsai-4b", "bonsai-8b")  # in panels, the head, too
PLANES = {"smollm2-135m": 3}  # sums of ternary matrices with a scale for each 32 weights, and a Q8_0 head
EXPERTS = ("maple", "qwen3-30b-a3b")  # mixtures of experts, in panels; the head int8
DISKS = (("SD card", 0.09), ("NVMe", 0.45))  # 1e9 bytes a second: assumptions; a PCIe 2.0 lane gives 0.5
SYSTEM, QUESTION, END = 1000, 52, 8  # tokens of a system prompt, of 40 words behind it, and of what is left when typed
SIZES = (8 * 10**9, 16 * 10**9)  # bytes of memory of boards
GROUP_BYTES = 34  # of 128 weights and their scale
TOGETHER = (1, 2, 4, 8)  # conversations that write at the same time
BLOCK, BLOCK_BYTES = 128, 32  # codes and bytes of a ternary block (pyx/kernels/kernels.h)
PAGE = 32  # tokens of a KV page
MANY_ROWS = 1728  # of a pass on ARM (pyx/kernels/kernels.h)
LEAST_CHUNK, MOST_CHUNK = 16, 128  # tokens of a prompt read at once: as many as take a second (edge/cache/state.py)
LOOKUP_LEAST_ROWS = 128  # neon.c; with fewer, tiles.inc.h
LOOKUP_FLUSH = 10  # blocks whose sums int16 holds, as activations are (benchmarks/log#look-ups)
LOOKUP_ENTRIES = 81 * BLOCK_BYTES / 8  # of all tables of a block, for each token: a vector of them serves eight


@dataclass(frozen=True)
class Board:
    """What is assumed of a board: cores, their clock, the memory rate of all cores together."""

    name: str
    cores: int
    ghz: float
    gb_s: tuple[float, float]  # 1e9 bytes a second, low and high
    target: str  # pyx/kernels/<target>.c
    cpus: tuple[str, ...]  # processors llvm-mca may stand in with, best first
    source: str


BOARDS = (
    Board(
        *("Pi 4", 4, 1.8, (4.0, 5.0), "neon", ("cortex-a72",)),
        "BCM2711: 4 Cortex-A72 at 1.8 GHz (1.5 GHz in early firmware), LPDDR4-3200 on 32 lines = 12.8 GB/s by the data"
        " sheet, of which 4-5 GB/s are taken to reach the cores (an assumption, not measured by us; published copy"
        " rates are 2.8 GB/s read plus as much written: github.com/geerlingguy/sbc-reviews/issues/110)",
    ),
    Board(
        *("Pi 5", 4, 2.4, (11.6, 13.2), "dotprod", ("neoverse-n1", "cortex-a76")),
        "BCM2712: 4 Cortex-A76 at 2.4 GHz, LPDDR4X-4267 on 32 lines = 17.1 GB/s by the data sheet, of which 11.6 GB/s"
        " reach four cores and 13.2 GB/s two (published, not measured by us: a read-only STREAM gave 9.3, 13.2 and 11.6"
        " GB/s with 1, 2 and 4 threads, github.com/ggml-org/llama.cpp/issues/26484)",
    ),
    Board(
        *("ARM laptop", 8, 3.0, (60.0, 100.0), "i8mm", ("neoverse-n2",)),
        "8 performance cores, taken as Neoverse N2 (two 128-bit SIMD pipes; Apple M and Oryon cores have four) at"
        " 3.0 GHz; LPDDR5 on 128 lines = 102 GB/s at 6400 MT/s, of which 60-100 GB/s are assumed to reach the cores",
    ),
)

ASSUMPTIONS = (
    "Nothing is measured on a board. Every figure is an upper bound: a real token also waits at about 200 barriers,"
    " computes norms, rotary embedding, softmax, activation quantisation and the sampler, and misses the TLB.",
    "Compute: every load hits the first-level cache, no branch is mispredicted, loop ends and row remainders cost"
    " nothing, all cores run at the stated clock (no throttling) and share the rows evenly.",
    "Memory: each weight, each head row and each stored key and value is read once per token; activations stay in"
    " cache. The prefetch of a stream is perfect.",
    "The two bounds overlap perfectly, so the lesser alone counts. Where they are close, expect less.",
    "Ternary weights take 2 bits (rows padded to 128), the head int8 with one float scale per row, the KV cache int8"
    " pages of 32 tokens with two half scales per token and KV head.",
    "Models with a scale for each 128 weights are read from panels (34 bytes for 128), their embedding as the head,"
    " too, or a matrix of the same size; what a group costs besides its products is counted ('panel floats').",
    "Planes: three matrices of panels with a scale for each 32 weights (7.5 bits a weight in all), a head of Q8_0 whose"
    " products are counted as those of int8.",
    "Experts: those that a token uses, each read once; scores of the routers are read (F32) and their products not"
    " counted. Beyond the memory: all experts are used equally often, the disk reads at 0.09 (SD card) or 0.45 (NVMe)"
    " times 1e9 bytes a second, and nothing is read ahead.",
    "First word: tokens are read by ternary_matmul alone, but in no less time than the memory takes to give all weights"
    " and the head once for each chunk; the file of a remembered prompt comes at the rate of the disk, nothing of it is"
    " in memory; the model is.",
    "Several at once: the products of the tiles of ternary_matmul for each conversation, the head's and attention's as"
    " for one, all weights read once and the keys and values of each; the tile's loop is counted for eight tokens, with"
    " fewer it spends more cycles a product.",
    "Attention counts its dot products only, all queries of a KV head in one group of four.",
    "Prefill is the ternary matrices alone, every loop of the kernel that is used counted (lookup.inc.h: rows, tables,"
    " lanes, offsets, flush; packs.inc.h: products, codes and tokens laid out; tiles.inc.h where a thread has too few"
    " rows for the first); chunks are of the tokens that take a second, 16 to 128; rows are shared evenly. Not counted:"
    " attention, what is written back behind a loop, and first-level cache misses, of which look-ups in 20.3 KiB of"
    " tables have some where the cache has two ways (Cortex-A72).",
    "LLVM's model of the Cortex-A53 gives every vector instruction six cycles until its result is there, and lets it"
    " load 128 bits a cycle where the core has a path of 64.",
    "LLVM has no scheduling model of the Cortex-A72 and A76: it uses the A57's (3 wide, one multiplier) for both. For"
    " the A76 the Neoverse N1 stands in where LLVM models it (19 does, 14 does not): the same core design, held to 4"
    " instructions a cycle, its decode width, because the model alone would dispatch 8. Neoverse N2 is held to 5. The"
    " column 'LLVM model' says which model answered.",
    "The Cortex-A57 and A72 have the same two SIMD pipes: multiplies on the first, shifts on the second, one a cycle"
    " each. That the A72 differs in its front end and its latencies is not modelled.",
)

SOURCES = (
    "Arm Cortex-A72 Software Optimization Guide (UAN 0016), sections 2 and 3",
    "Arm Cortex-A76 Software Optimization Guide (PJDOC-466751330-7215, version 8.0), sections 2.1 and 3",
    "Arm Neoverse N2 Software Optimization Guide, sections 2.1 and 3",
    "LLVM, llvm/lib/Target/AArch64: AArch64Processors.td (processor -> model), AArch64SchedA57.td, "
    "AArch64SchedNeoverseN1.td, AArch64SchedNeoverseN2.td",
    "Raspberry Pi documentation, processors BCM2711 and BCM2712; product briefs of Raspberry Pi 4 and 5",
    "shapes: benchmarks/make_model.py (as published; the width of falcon-e-1b from the size of its file)",
)

# ---- bytes and products of one token -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Token:
    """Work of one decoded token: weights and bytes, by part."""

    ternary_weights: int  # with the padding of rows to 128
    ternary_bytes: int
    head_weights: int
    head_bytes: int
    attention_products: int  # of keys, and as many of values
    kv_bytes: int
    router_bytes: int = 0  # F32

    @property
    def n_bytes(self) -> int:
        """Bytes read from memory."""
        return self.ternary_bytes + self.head_bytes + self.kv_bytes + self.router_bytes


def matrices(shape: Shape) -> list[tuple[int, int]]:
    """(rows, blocks along K) of the ternary matrices of a layer that a token reads."""
    query, kv = shape.n_head * shape.head_dim, shape.n_kv_head * shape.head_dim
    found = [(query, shape.hidden), (kv, shape.hidden), (kv, shape.hidden), (shape.hidden, query)]
    each = [(shape.ffn, shape.hidden), (shape.ffn, shape.hidden), (shape.hidden, shape.ffn)]
    found += each * (shape.experts[1] if shape.experts else 1)
    return [(n_row, -(-k // BLOCK)) for n_row, k in found]


def token(shape: Shape, n_past: int) -> Token:
    """What one token with n_past tokens before it reads and multiplies."""
    query = shape.n_head * shape.head_dim
    blocks = shape.n_layer * sum(n_row * n_block for n_row, n_block in matrices(shape))
    pages = -(-n_past // PAGE)
    page = PAGE * (2 * shape.head_dim + 2 * 2)
    return Token(
        ternary_weights=blocks * BLOCK,
        ternary_bytes=blocks * BLOCK_BYTES,
        head_weights=shape.n_vocab * shape.hidden,
        head_bytes=shape.n_vocab * (shape.hidden + 4),
        attention_products=shape.n_layer * query * PAGE * pages,
        kv_bytes=shape.n_layer * shape.n_kv_head * page * pages,
    )


# ---- bounds --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """Tokens per second of one model on one board."""

    board: str
    model: str
    target: str
    cpu: str
    megabytes: float  # per token
    compute: float  # tokens/s, all cores
    memory: tuple[float, float]
    expected: tuple[float, float]
    bound: str  # which of the two is the lesser
    prefill: float  # tokens/s by ternary_matmul alone; 0: not modelled (scales per group)
    tiled: float  # the same, were it all done by tiles.inc.h


@dataclass(frozen=True)
class Break:
    """Whether a loop keeps up with a board's memory."""

    board: str
    target: str
    cpu: str
    loop: str
    per_weight: float  # cycles per weight, one core
    needed: tuple[float, float]  # at the high and the low rate of the memory, all cores at work
    keeps_up: bool  # at the high rate


def best_cpu(board: Board, cycles: list[mca.Cycles]) -> str:
    """The first processor of the board for which LLVM's model is its own (N1, N2); else the last."""
    for cpu in board.cpus:
        model = next(each.model for each in cycles if each.cpu == cpu)
        if cpu != "neoverse-n1" or model == "N1":
            return cpu
    return board.cpus[-1]


def per_weight(cycles: list[mca.Cycles], target: str, cpu: str, loop: str) -> float:
    """Cycles per weight of a loop; attention's values cost as its keys where the compiler left no loop."""
    found = {each.loop: each.per_weight for each in cycles if (each.target, each.cpu) == (target, cpu)}
    return found.get(loop, found["attend_i8 keys"]) if loop == "attend_i8 values" else found[loop]


def block_cycles(cost: dict[str, float], n_row: float, n_token: int) -> float:
    """Cycles of one core for a block of its n_row rows and n_token tokens; cost: cycles of each loop."""
    if "pack products" in cost:
        products = n_row * n_token * cost["pack products"]
        return BLOCK * (products + n_row * cost["pack codes"] + n_token * cost["pack tokens"])
    if "lookup rows" not in cost or n_row < LOOKUP_LEAST_ROWS:
        return BLOCK * n_row * n_token * cost["ternary_matmul"]
    n_pass = -(-n_row // MANY_ROWS)
    for_rows = n_row * (BLOCK * cost["lookup offsets"] + n_token * cost["lookup flush"] / LOOKUP_FLUSH)
    for_tokens = n_token * (LOOKUP_ENTRIES * cost["lookup table"] + BLOCK * cost["lookup lanes"])
    return BLOCK * n_row * n_token * cost["lookup rows"] + for_rows + n_pass * for_tokens


def prefill(cost: dict[str, float], shape: Shape, board: Board) -> float:
    """Tokens a second of a long prompt by ternary_matmul alone, in chunks that take a second."""
    n_token, speed = MOST_CHUNK, 0.0
    for _ in range(4):
        busy = sum(k * block_cycles(cost, n_row / board.cores, n_token) for n_row, k in matrices(shape))
        speed = n_token * board.ghz * 1e9 / (shape.n_layer * busy)
        n_token = min(MOST_CHUNK, max(LEAST_CHUNK, int(speed) // LEAST_CHUNK * LEAST_CHUNK))
    return speed


def grouped(shape: Shape, n_past: int) -> Token:
    """What one token of a model with a scale for each 128 weights reads and multiplies."""
    plain = token(shape, n_past)
    head = shape.n_vocab * shape.hidden
    return Token(
        ternary_weights=plain.ternary_weights + head,
        ternary_bytes=(plain.ternary_weights + head) // BLOCK * GROUP_BYTES,
        head_weights=0,
        head_bytes=0,
        attention_products=plain.attention_products,
        kv_bytes=plain.kv_bytes,
    )


def planes(shape: Shape, n_past: int, n_plane: int) -> Token:
    """What one token of a model reads and multiplies whose matrices are sums of ternary ones in groups of 32, with
    panels of 64 rows.
    """
    plain = token(shape, n_past)
    query, kv = shape.n_head * shape.head_dim, shape.n_kv_head * shape.head_dim
    sizes = [(query, shape.hidden), (kv, shape.hidden), (kv, shape.hidden), (shape.hidden, query)]
    sizes += [(shape.ffn, shape.hidden), (shape.ffn, shape.hidden), (shape.hidden, shape.ffn)]
    weights = n_plane * shape.n_layer * sum(-(-n_row // 64) * 64 * k for n_row, k in sizes)
    head = shape.n_vocab * shape.hidden
    return Token(weights, weights // 32 * 10, head, head // 32 * 34, plain.attention_products, plain.kv_bytes)


def mixture(shape: Shape, n_past: int) -> Token:
    """What one token of a mixture of experts reads and multiplies, if all experts are in memory."""
    plain = token(shape, n_past)
    assert shape.experts is not None
    near = shape.n_layer * 3 // 4 if shape.window else 0  # layers that see no more than their window
    window = token(shape, min(n_past, shape.window or n_past))
    return Token(
        ternary_weights=plain.ternary_weights,
        ternary_bytes=plain.ternary_weights // BLOCK * GROUP_BYTES,
        head_weights=plain.head_weights,
        head_bytes=shape.n_vocab * shape.hidden // 32 * 34,
        attention_products=plain.attention_products,
        kv_bytes=(plain.kv_bytes * (shape.n_layer - near) + window.kv_bytes * near) // shape.n_layer,
        router_bytes=4 * shape.n_layer * shape.experts[0] * shape.hidden,
    )


@dataclass(frozen=True)
class OnDisk:
    """A mixture of experts on a board that holds only some of them."""

    model: str
    memory: int  # bytes of the board
    experts: int  # bytes in memory
    on_disk: int  # bytes that stay on the disk
    from_disk: float  # bytes that a token reads there, if all experts are used equally often
    speed: dict[str, float]  # disk -> tokens per second at most; empty: all experts are in memory


def on_disk() -> list[OnDisk]:
    """What boards of 8 and 16 GB hold of the models with experts."""
    from edge.machine.memory import left_on
    from edge.tools import fit

    out = []
    for model in EXPERTS:
        subject = fit.published(model)
        for memory in SIZES:
            plan = fit.needed(subject, fit.LoadSettings())
            f = plan.footprint.leaving(plan.total_bytes - left_on(memory))
            missing = (f.experts + f.on_disk) * subject.checkpoint.config.expert_share
            missing *= f.on_disk / (f.experts + f.on_disk)
            speed = {name: gb_s * 1e9 / missing for name, gb_s in DISKS} if missing else {}
            out.append(OnDisk(model, memory, f.experts, f.on_disk, missing, speed))
    return out


@dataclass(frozen=True)
class Together:
    """Tokens per second that several conversations write at most, all together."""

    board: str
    model: str
    parallel: int
    memory: tuple[float, float]
    compute: float
    gain: tuple[float, float]  # over one conversation, at the low and the high rate of the memory


def together(cycles: list[mca.Cycles], n_past: int, model: str = "2b-4t") -> list[Together]:
    """Bounds of steps of several conversations."""
    out = []
    for board in BOARDS:
        cpu = best_cpu(board, cycles)
        one = token(SHAPES[model], n_past)
        rest = one.head_weights * per_weight(cycles, board.target, cpu, "head_i8")
        rest += one.attention_products * sum(
            per_weight(cycles, board.target, cpu, f"attend_i8 {of}") for of in ("keys", "values"))
        alone: tuple[float, ...] = ()
        for n in TOGETHER:
            loop = "ternary_matvec" if n == 1 else "ternary_matmul"
            busy = one.ternary_weights * per_weight(cycles, board.target, cpu, loop) + rest
            compute = board.cores * board.ghz * 1e9 / busy
            n_bytes = one.ternary_bytes + one.head_bytes + n * one.kv_bytes
            low, high = (n * gb_s * 1e9 / n_bytes for gb_s in board.gb_s)
            reached = (min(low, compute), min(high, compute))
            alone = alone or reached
            out.append(Together(
                board.name, model, n, (low, high), compute, (reached[0] / alone[0], reached[1] / alone[1])))
    return out


@dataclass(frozen=True)
class FirstWord:
    """Seconds to the first word at least: a system prompt of SYSTEM tokens and a question of QUESTION."""

    board: str
    model: str
    cold: tuple[float, float]  # at the high and at the low rate of the memory
    file: int  # bytes of the remembered system prompt
    second: dict[str, tuple[float, float]]  # disk -> in the next process
    typed: tuple[float, float]  # read but for END tokens when the question ends
    weights: dict[str, float]  # disk -> seconds to read the model, which a start may wait for


def reading(cost: dict[str, float], shape: Shape, board: Board, n: int) -> tuple[float, float]:
    """Seconds to read n tokens, at the high and at the low rate of the memory."""
    one = token(shape, n)
    n_bytes = one.ternary_bytes + one.head_bytes
    most = min(MOST_CHUNK, max(LEAST_CHUNK, int(prefill(cost, shape, board)) // LEAST_CHUNK * LEAST_CHUNK))
    full, rest = divmod(n, most)
    low = high = 0.0
    for n_token in [most] * full + [rest] * bool(rest):
        busy = sum(k * block_cycles(cost, n_row / board.cores, n_token) for n_row, k in matrices(shape))
        compute = shape.n_layer * busy / (board.ghz * 1e9)
        low += max(compute, n_bytes / (board.gb_s[1] * 1e9))
        high += max(compute, n_bytes / (board.gb_s[0] * 1e9))
    return low, high


def first_word(cycles: list[mca.Cycles], model: str = "2b-4t") -> list[FirstWord]:
    """Bounds of the first word on every board."""
    shape, out = SHAPES[model], []
    one = token(shape, SYSTEM)
    for board in BOARDS:
        cpu = best_cpu(board, cycles)
        parts = {each.loop for each in cycles if (each.target, each.cpu) == (board.target, cpu)}
        cost = {name: per_weight(cycles, board.target, cpu, name) for name in parts}
        cold, (low, high), typed = (reading(cost, shape, board, n) for n in (SYSTEM + QUESTION, QUESTION, END))
        files = {name: one.kv_bytes / (gb_s * 1e9) for name, gb_s in DISKS}
        second = {name: (each + low, each + high) for name, each in files.items()}
        weights = {name: (one.ternary_bytes + one.head_bytes) / (gb_s * 1e9) for name, gb_s in DISKS}
        out.append(FirstWord(board.name, model, cold, one.kv_bytes, second, typed, weights))
    return out


def bounds(cycles: list[mca.Cycles], n_past: int) -> list[Bound]:
    """Both bounds for every board and model."""
    out = []
    for board in BOARDS:
        cpu = best_cpu(board, cycles)
        parts = {each.loop for each in cycles if (each.target, each.cpu) == (board.target, cpu)}
        names = {*mca.LOOPS, *parts} - mca.WITHOUT.get(board.target, set())
        cost = {name: per_weight(cycles, board.target, cpu, name) for name in names}
        rate = board.cores * board.ghz * 1e9
        for model in (*MODELS, *GROUPED, *PLANES, *EXPERTS):
            groups = model in (*GROUPED, *PLANES, *EXPERTS)
            work = mixture if model in EXPERTS else grouped if groups else token
            one = work(SHAPES[model], n_past)
            each = cost["panel_matmul"] + cost["panel floats"] if groups else cost["ternary_matvec"]
            if model in PLANES:
                one, each = planes(SHAPES[model], n_past, PLANES[model]), cost["planes of 32"]
            busy = one.ternary_weights * each
            busy += one.head_weights * cost["head_i8"]
            busy += one.attention_products * (cost["attend_i8 keys"] + cost["attend_i8 values"])
            compute = rate / busy
            low, high = (gb_s * 1e9 / one.n_bytes for gb_s in board.gb_s)
            bound = "memory" if high <= compute else "compute" if compute <= low else "memory, then compute"
            out.append(
                Bound(
                    *(board.name, model, board.target, cpu, one.n_bytes / 1e6, compute, (low, high)),
                    expected=(min(low, compute), min(high, compute)),
                    bound=bound,
                    prefill=0.0 if groups else prefill(cost, SHAPES[model], board),
                    tiled=0.0 if groups else rate / (one.ternary_weights * cost["ternary_matmul"]),
                )
            )
    return out


def breaks(cycles: list[mca.Cycles]) -> list[Break]:
    """For each board and each decode loop, the cycles per weight that its memory allows."""
    out = []
    for board in BOARDS:
        cpu = best_cpu(board, cycles)
        for loop, weights_per_byte in (("ternary_matvec", BLOCK / BLOCK_BYTES), ("head_i8", 1.0)):
            low, high = (board.cores * board.ghz / (gb_s * weights_per_byte) for gb_s in reversed(board.gb_s))
            cost = per_weight(cycles, board.target, cpu, loop)
            out.append(Break(board.name, board.target, cpu, loop, cost, (low, high), cost <= low))
    return out


# ---- output --------------------------------------------------------------------------------------------------------


def table(head: str, rows: list[list[str]]) -> str:
    """Markdown table; head is separated by |."""
    names = [name.strip() for name in head.split("|")]
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def span(pair: tuple[float, float]) -> str:
    """'low-high', or one figure."""
    low, high = (f"{value:.1f}" if value < 100 else f"{value:.0f}" for value in pair)
    return low if low == high else f"{low}-{high}"


def seconds(pair: tuple[float, ...]) -> str:
    """'low-high', or one figure."""
    low, high = (f"{value:.2g}" if value < 1 else f"{value:.1f}" for value in pair)
    return low if low == high else f"{low}-{high}"


def verdict(each: Break) -> str:
    """One sentence per loop and board."""
    board = next(board for board in BOARDS if board.name == each.board)
    low, high = each.needed
    word = "keeps up with memory" if each.keeps_up else "IS SLOWER than the memory"
    if not each.keeps_up and each.per_weight <= high:
        word += " at its high rate, not at its low one"
    return (
        f"{each.board}: {each.loop} of {each.target} {word}: {each.per_weight:.3f} cycles per weight, while"
        f" {board.cores} cores at {board.ghz:g} GHz meet {board.gb_s[0]:g}-{board.gb_s[1]:g} GB/s at"
        f" {high:.3f}-{low:.3f} (headroom {low / each.per_weight:.1f}x at the high rate)"
    )


def markdown(cycles: list[mca.Cycles], n_past: int) -> str:
    """The whole report."""
    parts = [
        "## Inner loops",
        f"Analyser: {mca.version(mca.analyser())}. Compiler: {mca.version(mca.compiler())}, flags of setup.py.",
        table(
            "processor | LLVM model | target | loop | instructions | cycles a pass | weights a pass |"
            " cycles per weight",
            [
                [
                    *(each.cpu, each.model, each.target, each.loop, str(each.instructions), f"{each.cycles:.1f}"),
                    *(f"{each.weights:g}", f"{each.per_weight:.4f}"),
                ]
                for each in cycles
            ],
        ),
        "For matmul, look-ups of rows, packed products and attention a weight is one product of a weight and one"
        " token's activation; for tables an entry of eight tokens, for lanes and tokens an activation, for the flush a"
        " sum.",
        "## Memory or arithmetic",
        "\n".join(f"* {verdict(each)}." for each in breaks(cycles)),
        f"## Tokens per second to expect at most ({n_past} tokens of context)",
        table(
            "board | model | target, processor | MB a token | memory t/s | compute t/s | **expected at most** |"
            " bound by | prefill t/s (matmul alone) | by tiles.inc.h alone",
            [
                [
                    *(each.board, each.model, f"{each.target}, {each.cpu}", f"{each.megabytes:.0f}", span(each.memory)),
                    *(f"{each.compute:.0f}", f"**{span(each.expected)}**", each.bound),
                    *((f"{each.prefill:.0f}", f"{each.tiled:.0f}") if each.prefill else ("", "")),
                ]
                for each in bounds(cycles, n_past)
            ],
        ),
        "## Experts beyond the memory",
        table(
            "model | board | experts in memory | on disk | MB a token from disk | "
            + " | ".join(f"{name}, t/s at most" for name, _ in DISKS),
            [
                [each.model, *(f"{n / 1e9:.3g} GB" for n in (each.memory, each.experts, each.on_disk)),
                 f"{each.from_disk / 1e6:.0f}", *(f"{each.speed[name]:.1f}" if each.speed else "" for name, _ in DISKS)]
                for each in on_disk()
            ],
        ),
        f"## Several conversations at once ({n_past} tokens of context each)",
        table(
            "board | model | at once | memory t/s | compute t/s | **over one, at most**",
            [
                [each.board, each.model, str(each.parallel), span(each.memory), f"{each.compute:.0f}",
                 f"**{span(each.gain)}x**"]
                for each in together(cycles, n_past)
            ],
        ),
        f"## Seconds to the first word, at least (a system prompt of {SYSTEM} tokens, a question of {QUESTION})",
        table(
            "board | model | cold | " + " | ".join(f"next process, {name}" for name, _ in DISKS)
            + " | typed | " + " | ".join(f"the model from {name}" for name, _ in DISKS),
            [
                [each.board, each.model, seconds(each.cold), *(seconds(each.second[name]) for name, _ in DISKS),
                 seconds(each.typed), *(f"{each.weights[name]:.1f}" for name, _ in DISKS)]
                for each in first_word(cycles)
            ],
        ),
        "### Assumptions",
        "\n".join(f"* {text}" for text in (*ASSUMPTIONS, *(f"{board.name}: {board.source}." for board in BOARDS))),
        "### Sources",
        "\n".join(f"* {text}" for text in SOURCES),
    ]
    return "\n\n".join(parts)


def report(cycles: list[mca.Cycles], n_past: int) -> dict[str, object]:
    """The same as plain data."""
    return {
        "analyser": mca.version(mca.analyser()),
        "compiler": mca.version(mca.compiler()),
        "n_past": n_past,
        "loops": [{**asdict(each), "per_weight": each.per_weight} for each in cycles],
        "breaks": [asdict(each) for each in breaks(cycles)],
        "together": [asdict(each) for each in together(cycles, n_past)],
        "on_disk": [asdict(each) for each in on_disk()],
        "first_word": [asdict(each) for each in first_word(cycles)],
        "tokens": {model: {**asdict(token(SHAPES[model], n_past))} for model in MODELS},
        "boards": [asdict(board) for board in BOARDS],
        "bounds": [asdict(each) for each in bounds(cycles, n_past)],
        "assumptions": ASSUMPTIONS,
        "sources": SOURCES,
    }


def main(arguments: list[str] | None = None) -> int:
    """Command line; 0, or 1 where a tool or a loop is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="plain data instead of markdown")
    parser.add_argument("--context", type=int, default=512, help="tokens in the KV cache (default: 512)")
    parser.add_argument("--kernels", type=Path, default=mca.ROOT / "pyx/kernels", help="folder of the C files")
    options = parser.parse_args(arguments)
    try:
        cycles = mca.everything(options.kernels)
    except mca.Missing as missing:
        print(missing, file=sys.stderr)
        return 1
    print(json.dumps(report(cycles, options.context), indent=1) if options.json else markdown(cycles, options.context))
    return 0


if __name__ == "__main__":
    sys.exit(main())
