"""What PyTorch answered, by other means than the page's: NumPy in float64, no Flax."""

import json
import math
import re
from pathlib import Path

import numpy as np

from seejax.lesson import recorded

ROOT = Path(__file__).parents[2]
SIZES = {"F32": np.float32, "I64": np.int64}


def read(name: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of a .safetensors file, numbers with a point in float64, and its metadata."""
    raw = recorded.path(name).read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    about = header.pop("__metadata__", {})
    found = {}
    for key, entry in header.items():
        first, last = entry["data_offsets"]
        array = np.frombuffer(raw[start + first : start + last], SIZES[entry["dtype"]])
        found[key] = array.reshape(entry["shape"])
    return {k: np.float64(a) if a.dtype.kind == "f" else a for k, a in found.items()}, about


ANSWERS, ABOUT = read("torch_answers.safetensors")


def test_the_recorded_mlp_is_layernorm_with_1e_5_and_the_exact_gelu() -> None:
    weights, _ = read("torch_mlp.safetensors")
    h = ANSWERS["mlp.input"] @ weights["hidden.weight"].T
    h = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-5)
    h = h * weights["norm.weight"] + weights["norm.bias"]
    h = h * (1 + np.vectorize(math.erf)(h / 2**0.5)) / 2
    out = h @ weights["out.weight"].T + weights["out.bias"]
    np.testing.assert_allclose(out, ANSWERS["mlp.output"], atol=1e-5)


def test_the_recorded_cnn_pads_one_on_each_side_and_flattens_the_channels_first() -> None:
    weights, _ = read("torch_cnn.safetensors")
    x = np.pad(ANSWERS["cnn.input"], ((0, 0), (0, 0), (1, 1), (1, 1)))
    h = np.empty((len(x), 6, 4, 6))
    for row, column in np.ndindex(4, 6):
        window = x[:, :, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3]
        h[:, :, row, column] = np.einsum("bcij,ocij->bo", window, weights["conv.weight"])
    each = (slice(None), None, None)
    h += weights["conv.bias"][each]
    np.testing.assert_allclose(h, ANSWERS["cnn.conv.out"], atol=1e-5)
    h = (h - weights["norm.running_mean"][each]) / np.sqrt(weights["norm.running_var"] + 1e-5)[each]
    h = np.maximum(h * weights["norm.weight"][each] + weights["norm.bias"][each], 0)
    h = h.reshape(-1, 6, 2, 2, 3, 2).max((3, 5)).reshape(-1, 36)
    out = h @ weights["out.weight"].T + weights["out.bias"]
    np.testing.assert_allclose(out, ANSWERS["cnn.output"], atol=1e-5)


def test_no_recorded_array_is_as_it_was_made() -> None:
    for name in "mlp", "cnn", "block", "lstm", "gru", "others":
        for key, array in read(f"torch_{name}.safetensors")[0].items():
            assert np.isfinite(array).all() and array.all(), f"{name}: {key}"
            assert array.size == 1 or array.std() > 1e-3, f"{name}: {key}"


def test_the_record_names_the_version_that_the_benchmarks_use() -> None:
    pinned = re.search(
        r'TORCH = "torch==([\d.]+)"', (ROOT / "bench" / "environments.py").read_text("utf8")
    )
    assert pinned and ABOUT["made"].startswith(f"torch {pinned[1]}+cpu, safetensors ")


def test_the_records_are_small() -> None:
    files = recorded.path("torch_answers.safetensors").parent.glob("*.safetensors")
    assert sum(file.stat().st_size for file in files) < 100_000
