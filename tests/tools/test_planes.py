"""Planes: dense models as sums of ternary matrices, against NumPy that decodes what was written by itself."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.errors import EdgeError, InvalidFile, UsageError
from edge.formats import container, names, open_checkpoint
from edge.formats.container import Entry
from edge.formats.gguf_keys import metadata
from edge.model.weights import build
from edge.registry.encodings import FLOAT_TYPES
from edge.tools.convert import convert
from edge.tools.planes import Planes
from pyx.weights import StoredRows, all_floats, fit_matrix
from tests.configs import rope_style, styled
from tests.handmade import hf_config, hf_directory, hf_floats, hf_tensors
from tests.kernels.test_transformer import logits
from tests.oracles import family, tiny
from tests.services import bitnet_edge, in_python

FAMILIES = {"llama": "llama3_rope", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3"}


def dense(name: str) -> dict[str, np.ndarray]:
    """The tensors of a tiny model, its matrices no longer ternary."""
    random = np.random.RandomState(5)
    model = tiny.MODELS[name]
    return {key: (0.06 * random.standard_t(5, value.shape)).astype(np.float32) if tiny.is_ternary(model, key) else value
            for key, value in tiny.weights(model).items()}


def folder(path: Path, name: str, type: str = "F32", **config: Any) -> str:
    """A tiny dense model as a Hugging Face folder."""
    return saved(path, name, dense(name), type, **config)


def saved(path: Path, name: str, weights: dict[str, np.ndarray], type: str = "F32", **config: Any) -> str:
    """These weights as a Hugging Face folder."""
    model = tiny.MODELS[name]
    full = {"architectures": [model.architecture], **model.config, **config}
    return hf_directory(path, full, hf_floats(weights, type, type))


def decoded(tensor: Any, k: int, group: int) -> np.ndarray:
    """The weights [n_row][k] that a tensor of planes stands for, by the description of its layout."""
    rows, n_plane = tensor.shape[0], tensor.shape[1] // k
    size = 128 + 16 * group
    panels = np.frombuffer(tensor.data, np.uint8).reshape(-1, k // group, n_plane, size)
    scale = panels[..., :128].copy().view(np.float16).astype(np.float32)  # [panel][g][p][64]
    codes = panels[..., 128:].reshape(*panels.shape[:3], group // 4, 16, 4)
    weights = np.stack([(codes >> 2 * f & 3).astype(np.int8) - 1 for f in range(4)])  # [f][panel][g][p][step][lane][b]
    weights = weights.transpose(1, 0, 5, 2, 3, 4, 6).reshape(len(panels), 64, k // group, n_plane, group)
    if group == 128:  # element 4p + f stands at 32f + p
        weights = weights.reshape(*weights.shape[:-1], 4, 32).swapaxes(-1, -2).reshape(weights.shape)
    values = weights * scale.transpose(0, 3, 1, 2)[..., None]
    return values.sum(3).reshape(-1, k)[:rows]


def widths(config: Any) -> dict[str, int]:
    return {part.name: part.shape[1] for part in names.parts(config) if part.role == "matrix"}


def matrices(path: str, group: int) -> dict[str, np.ndarray]:
    """The weights of all matrices of a converted file."""
    checkpoint = open_checkpoint(path)
    return {name: decoded(checkpoint.tensors[name], k, group) for name, k in widths(checkpoint.config).items()}


def floats_of(checkpoint: Any) -> dict[str, np.ndarray]:
    """All tensors of a dense checkpoint as float32."""
    found = {}
    for name, tensor in checkpoint.tensors.items():
        rows, k = tensor.shape if len(tensor.shape) == 2 else (1, tensor.shape[0])
        found[name] = np.array(all_floats(StoredRows(tensor.type, tensor.data, rows, k))).reshape(tensor.shape)
    return found


# ---- the fit ---------------------------------------------------------------------------------------------------------


def slow_fit(w: np.ndarray, n_plane: int, starts: int = 6) -> float:
    """The least squared error of a group that alternating finds, the obvious way."""
    codes = np.stack(np.meshgrid(*[[-1, 0, 1]] * n_plane)).reshape(n_plane, -1).T
    best = np.inf
    for start in range(starts):
        a = np.abs(w).max() * (0.4 + 0.1 * start) * 3.0 ** -np.arange(n_plane)
        for _ in range(12):
            t = codes[np.abs(w[:, None] - codes @ a).argmin(1)]
            a = np.linalg.lstsq(t.astype(float), w, rcond=None)[0]
        best = min(best, float(((w - codes[np.abs(w[:, None] - codes @ a).argmin(1)] @ a) ** 2).sum()))
    return best


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("n_plane", [1, 2, 3, 4])
def test_a_fit_is_as_good_as_the_slow_one(n_plane: int, group: int) -> None:
    w = np.random.default_rng(n_plane).standard_normal((8, 2 * group)).astype(np.float32)
    codes, scales, error, whole = fit_matrix(w.ravel(), 8, 2 * group, group, n_plane)
    t = np.array(codes, np.int8).reshape(n_plane, 8, 2, group)
    s = np.array(scales, np.float32).reshape(n_plane, 8, 2, 1)
    assert set(np.unique(t)) <= {-1, 0, 1} and (s >= 0).all()
    assert (s == s.astype(np.float16)).all()
    miss = w.reshape(8, 2, group).astype(float) - (t.astype(float) * s).sum(0)
    assert error == pytest.approx((miss**2).sum()) and whole == pytest.approx((w.astype(float) ** 2).sum())
    slow = sum(slow_fit(each, n_plane) for each in w.reshape(-1, group).astype(float))
    assert error <= 1.03 * slow


def test_threads_change_nothing_and_zeros_stay() -> None:
    w = np.random.default_rng(1).standard_normal((70, 128)).astype(np.float32)
    w[3], w[4, :40] = 0, 1e-9
    runs = [fit_matrix(w.ravel(), 70, 128, 64, 3, n) for n in (1, 2, 5)]
    assert all(bytes(a[0]) == bytes(runs[0][0]) and bytes(a[1]) == bytes(runs[0][1]) and a[2:] == runs[0][2:]
               for a in runs)
    assert not np.array(runs[0][0]).reshape(3, 70, 128)[:, 3].any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e9])
def test_weights_that_half_precision_cannot_scale(bad: float) -> None:
    w = np.ones((2, 32), np.float32)
    w[1, 5] = bad
    with pytest.raises(ValueError, match="16 bits"):
        fit_matrix(w.ravel(), 2, 32, 32, 1)


# ---- files -----------------------------------------------------------------------------------------------------------


# what a family and what a group do differently have nothing to do with each other
@pytest.mark.parametrize(("family_name", "group"), [("llama", 32), ("qwen2", 64), ("gemma3", 128), ("qwen3", 32),
                                                    ("qwen3", 64), ("qwen3", 128)])
def test_each_family_runs_as_numpy_says(tmp_path: Path, family_name: str, group: int) -> None:
    """The converted file, run by the engine, gives the logits of the weights that it holds, and those are near the
    model's.
    """
    source = folder(tmp_path / "m", FAMILIES[family_name])
    convert(source, tmp_path / "m.gguf", planes=Planes(3, group), embedding="F32")
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    assert (checkpoint.config.planes, checkpoint.config.activation_quant) == (group, f"int8-{group}")
    made = matrices(str(tmp_path / "m.gguf"), group)
    rest = {name: tensor for name, tensor in checkpoint.tensors.items() if name not in made}
    weights = {**made, **floats_of(dataclasses.replace(checkpoint, tensors=rest))}
    exact = dataclasses.replace(checkpoint.config, activation_quant="none")
    before = open_checkpoint(source, dense=True)
    # the file has the divisors of the rotation as a tensor, which this oracle takes from the configuration
    layers = tuple(styled(each, rope_style(exact)) for each in before.config.layers)
    want = family.Model(dataclasses.replace(exact, layers=layers), weights).logits(tiny.IDS)
    got = logits(build(dataclasses.replace(checkpoint, config=exact), head="f32"), exact, tiny.IDS)
    assert np.abs(got - want).max() <= 1e-4 * np.ptp(want)
    rounded = logits(build(checkpoint, head="f32"), checkpoint.config, tiny.IDS)
    assert np.corrcoef(rounded.ravel(), want.ravel())[0, 1] > 0.97
    original = family.Model(before.config, floats_of(before)).logits(tiny.IDS)
    assert np.corrcoef(original.ravel(), want.ravel())[0, 1] > 0.9


@pytest.mark.parametrize("type", FLOAT_TYPES)
def test_each_type_of_source(tmp_path: Path, type: str) -> None:
    """GGUF files of every type: what is written is near what the gguf package decodes."""
    package = pytest.importorskip("gguf", reason="needs the gguf package (dev dependency)")
    convert_to_file(tmp_path / "dense.gguf", "qwen3", type)
    result = convert(tmp_path / "dense.gguf", tmp_path / "m.gguf", planes=Planes(2, 64))
    made = matrices(result.path, 64)
    reader = package.GGUFReader(tmp_path / "dense.gguf")
    for tensor in reader.tensors:
        if tensor.name in made:
            want = package.quants.dequantize(tensor.data, tensor.tensor_type).reshape(made[tensor.name].shape)
            assert ((made[tensor.name] - want) ** 2).sum() <= 0.05 * (want**2).sum(), tensor.name
    assert open_checkpoint(result.path).metadata["bitnet-edge.planes.source"] == f"dense.gguf ({type})"


def convert_to_file(path: Path, name: str, type: str) -> None:
    """A tiny dense model as a GGUF file whose matrices have a type.  Of types that the gguf package cannot write, the
    blocks are random bytes with sane scales.
    """
    package = pytest.importorskip("gguf", reason="needs the gguf package (dev dependency)")
    source = open_checkpoint(folder(path.parent / "hf", name), dense=True)
    rng = np.random.default_rng(7)

    def stored(tensor: Any) -> Entry:
        if not names.is_projection(tensor.name):
            return Entry(tensor.name, tensor.type, tensor.shape, tensor.data)
        values = np.frombuffer(tensor.data, np.float32).reshape(tensor.shape)
        kind = package.GGMLQuantizationType[type]
        try:
            data = package.quants.quantize(values, kind).tobytes()
        except NotImplementedError:
            elements, size = package.GGML_QUANT_SIZES[kind]
            blocks = rng.integers(0, 256, (values.size // elements, size), dtype=np.uint8)
            for at in {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,)}[type]:
                blocks[:, at : at + 2] = np.frombuffer(np.float16(0.001).tobytes(), np.uint8)
            data = blocks.tobytes()
        return Entry(tensor.name, type, tensor.shape, data)

    container.write(path, metadata(source, "I2_S"), [stored(each) for each in source.tensors.values()])


def test_rows_of_llama_are_reordered(tmp_path: Path) -> None:
    """Queries of a Hugging Face folder come in the order of GGUF."""
    convert(folder(tmp_path / "m", "llama3_rope"), tmp_path / "m.gguf", planes=Planes(3, 32))
    made = matrices(str(tmp_path / "m.gguf"), 32)["blk.0.attn_q.weight"]
    want = dense("llama3_rope")["model.layers.0.self_attn.q_proj.weight"]
    want = want.reshape(4, 2, 64, 256).swapaxes(1, 2).reshape(512, 256)
    assert ((made - want) ** 2).sum() <= 0.01 * (want**2).sum()


def test_more_planes_and_smaller_groups_lose_less(tmp_path: Path) -> None:
    source = folder(tmp_path / "m", "qwen3")
    lost = {}
    for planes in (Planes(1, 64), Planes(4, 64), Planes(2, 128), Planes(2, 32), Planes(3, 32), Planes()):
        result = convert(source, tmp_path / "m.gguf", planes=planes, force=True)
        said = open_checkpoint(result.path).metadata
        key = (planes.count, planes.group)
        lost[key] = said["bitnet-edge.planes.error"]
        assert said["bitnet-edge.planes.bits"] == pytest.approx(planes.count * (2 + 16 / planes.group))
        assert said["bitnet-edge.planes.method"] == "fit"
        assert said["bitnet-edge.planes.group"] == planes.group
        want = {name: np.array(value) for name, value in floats_of(open_checkpoint(source, dense=True)).items()}
        made = matrices(result.path, planes.group)
        errors = sum(float(((made[name] - want[name]) ** 2).sum()) for name in made)
        assert lost[key] == pytest.approx(errors / sum(float((want[name] ** 2).sum()) for name in made), rel=1e-3)
    assert lost[1, 64] > lost[2, 128] > lost[2, 32] > lost[3, 32] > lost[4, 64]


# ---- interruptions ---------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """A signal."""


def interrupted(source: Path, target: Path, at: str) -> list[str]:
    """Convert, but stop at a tensor; returns what the folder then has."""
    def stop(_done: int, _total: int, name: str) -> None:
        if name == at:
            raise Killed

    with pytest.raises(Killed):
        convert(source, target, planes=Planes(), progress=stop)
    return sorted(path.name for path in target.parent.iterdir())


@pytest.mark.parametrize(
    "case", ["the same", "cut off", "another source", "other options", "a damaged part", "no part"])
def test_an_interrupted_conversion_goes_on(tmp_path: Path, case: str) -> None:
    """The same bytes as without an interruption, and only what is missing is made; else all of it anew."""
    source, other, target = tmp_path / "a", tmp_path / "b", tmp_path / "out" / "m.gguf"
    target.parent.mkdir()
    folder(source, "qwen3")
    weights = dense("qwen3")
    weights["model.layers.0.self_attn.k_proj.weight"][0, 0] += 1
    saved(other, "qwen3", weights)
    assert interrupted(source, target, "blk.0.attn_q.weight") == []  # nothing to go on with
    assert interrupted(source, target, "blk.1.attn_q.weight") == ["m.gguf.part", "m.gguf.part.json"]
    planes, part, journal = Planes(), Path(f"{target}.part"), Path(f"{target}.part.json")
    if case == "cut off":
        journal.write_bytes(journal.read_bytes()[:-20])
    elif case == "another source":
        shutil.rmtree(source)
        other.rename(source)
    elif case == "other options":
        planes = Planes(2)
    elif case == "a damaged part":
        part.write_bytes(bytes(part.stat().st_size))
    elif case == "no part":
        part.unlink()
    moved: dict[str, list[int]] = {}
    convert(source, target, planes=planes, progress=lambda done, _, name: moved.setdefault(name, []).append(done))
    made = {name for name, amounts in moved.items() if name.startswith("blk.0") and len(set(amounts)) > 1}
    assert len(made) == {"the same": 0, "cut off": 1, "another source": 1}.get(case, 7)
    assert sorted(path.name for path in target.parent.iterdir()) == ["m.gguf"]
    convert(source, tmp_path / "whole.gguf", planes=planes)
    assert target.read_bytes() == (tmp_path / "whole.gguf").read_bytes()


def test_a_disk_that_fills_up_keeps_what_is_done(tmp_path: Path) -> None:
    folder(tmp_path / "m", "qwen3")
    whole = convert(tmp_path / "m", tmp_path / "whole.gguf", planes=Planes())
    code = ("import resource, sys\nfrom edge.errors import EdgeError\nfrom edge.tools.convert import convert\n"
            "from edge.tools.planes import Planes\n"
            f"resource.setrlimit(resource.RLIMIT_FSIZE, ({whole.nbytes * 3 // 4},) * 2)\n"
            "try:\n    convert(*sys.argv[1:], planes=Planes())\nexcept EdgeError as error:\n    print(error)")
    target = tmp_path / "m.gguf"
    assert "free some space, and the same command goes on" in in_python(code, tmp_path / "m", target)
    assert (tmp_path / "m.gguf.part").exists()
    convert(tmp_path / "m", target, planes=Planes())
    assert target.read_bytes() == (tmp_path / "whole.gguf").read_bytes()


def test_a_failed_conversion_leaves_nothing(tmp_path: Path) -> None:
    """Once more it would fail again."""
    broken = dense("qwen3")
    broken["model.layers.1.mlp.up_proj.weight"][3, 4] = np.nan
    saved(tmp_path / "m", "qwen3", broken)
    with pytest.raises(InvalidFile, match=r"blk\.1\.ffn_up\.weight: a weight is not a finite"):
        convert(tmp_path / "m", tmp_path / "m.gguf", planes=Planes())
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


# ---- refusals --------------------------------------------------------------------------------------------------------


def f32_ternary(path: Path, **changed: Any) -> str:
    """A tiny qwen3 whose matrices are ternary floats, but ``changed``."""
    return saved(path, "qwen3", {**tiny.weights(tiny.MODELS["qwen3"]), **changed})


@pytest.mark.parametrize("kind", ["4 bits", "a row of zeros", "the last weight", "one matrix"])
def test_a_dense_model_with_few_magnitudes_becomes_planes(tmp_path: Path, kind: str) -> None:
    """All rows of all matrices decide: 4 bits stored as floats have few magnitudes; plain conversion sends here."""
    q, k = "model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight"
    values = {key: value.copy() for key, value in dense("qwen3").items()}
    if kind == "4 bits":
        for key, value in values.items():
            if tiny.is_ternary(tiny.MODELS["qwen3"], key):
                value[:] = np.clip(np.round(value / 0.02), -8, 7) * np.float32(0.02)
    elif kind == "a row of zeros":
        values[q][0] = 0
    else:
        values = {}
        if kind == "the last weight":
            values[q] = tiny.weights(tiny.MODELS["qwen3"])[q].copy()
            values[q][-1, -1] = 0.123
        else:
            values[k] = dense("qwen3")[k]
    result = convert(f32_ternary(tmp_path / "m", **values), tmp_path / "m.gguf", planes=Planes(3, 32))
    assert open_checkpoint(result.path).config.planes


def test_what_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "m.gguf"
    ternary = hf_directory(tmp_path / "t", hf_config(), hf_tensors("scaled"))
    with pytest.raises(EdgeError, match="is ternary already"):
        convert(ternary, target, planes=Planes(3, 32))
    with pytest.raises(EdgeError, match="is ternary already"):  # floats that are ternary, known by all of their rows
        convert(f32_ternary(tmp_path / "f"), target, planes=Planes(3, 32))
    with pytest.raises(UsageError, match="planes of architecture qwen3moe are not supported"):  # experts
        convert(folder(tmp_path / "e", "qwen3moe"), tmp_path / "m.gguf", planes=Planes())
    with pytest.raises(UsageError, match="hunyuan-dense are not supported"):
        convert(folder(tmp_path / "h", "hunyuan"), target, planes=Planes(3, 32))
    with pytest.raises(UsageError, match="rows of 192, not a multiple of 128.*--group 64"):
        convert(narrow(tmp_path / "n", 192), target, planes=Planes(3, 128))
    with pytest.raises(UsageError, match="rows of 176, not a multiple of 32"):
        convert(narrow(tmp_path / "o", 176), target, planes=Planes(3, 32))
    for planes in ({"count": 5}, {"count": 0}, {"group": 48}):
        with pytest.raises(UsageError):
            Planes(**planes)
    with pytest.raises(InvalidFile, match="--planes 3"):
        open_checkpoint(folder(tmp_path / "q", "qwen3"))
    assert not target.exists()


def narrow(path: Path, ffn: int) -> str:
    """A tiny dense qwen3 with a feed-forward part of another width."""
    tensors = {key: value[:ffn] if "gate" in key or "up_proj" in key else value[:, :ffn] if "down" in key else value
               for key, value in dense("qwen3").items()}
    return saved(path, "qwen3", tensors, intermediate_size=ffn)


def test_the_command(tmp_path: Path) -> None:
    """Options, exit codes, one line for each error."""
    source = folder(tmp_path / "m", "qwen3")
    run = functools.partial(bitnet_edge, "convert", source, tmp_path / "m.gguf", PYTHONHASHSEED="0")
    assert run("--planes", "2", "--group", "64").returncode == 0
    assert open_checkpoint(tmp_path / "m.gguf").config.planes == 64
    shown = bitnet_edge("model", tmp_path / "m.gguf")
    assert "group 64" in shown.stdout, shown.stderr
    assert "error 0.0" in shown.stdout
    for options in (["--group", "64"], ["--planes", "2", "--type", "I2_S"], ["--planes", "2", "--ternarise"]):
        failed = run("--force", *options)
        assert failed.returncode == 2 and len(failed.stderr.splitlines()) <= 2, failed.stderr


@pytest.mark.parametrize("again", [{}, {"type": "TQ2_0"}, {"planes": Planes(2)}])
def test_a_file_of_planes_is_not_converted_again(tmp_path: Path, again: dict[str, Any]) -> None:
    """Each way once advised another one, which failed, too."""
    convert_to_file(tmp_path / "dense.gguf", "qwen3", "Q4_1")
    convert(tmp_path / "dense.gguf", tmp_path / "out.gguf", planes=Planes(2))
    with pytest.raises(UsageError, match="is made of planes already"):
        convert(tmp_path / "out.gguf", tmp_path / "again.gguf", **again)
