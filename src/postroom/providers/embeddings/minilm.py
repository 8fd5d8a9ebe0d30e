"""all-MiniLM-L6-v2: a text becomes a vector whose direction is its meaning."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from numpy.typing import NDArray

from postroom.errors import MailError
from postroom.providers.embeddings.wordpiece import Vocabulary

Array = NDArray[np.float32]

WEIGHTS = Path(__file__).parent / "weights"
DIMENSIONS = 384
MOST_PIECES = 256
"""What the model was trained to read of a text; the rest is not looked at."""

_ERRORS_ONLY = 3


class MiniLM:
    """The model in memory. Rows of words stay whole numbers, and so do the layers."""

    def __init__(self, folder: Path = WEIGHTS) -> None:
        check_weights(folder)
        self._vocabulary = Vocabulary(folder / "vocabulary.txt")
        with np.load(folder / "words.npz") as packed:
            self._words = packed["words.rows"], packed["words.scale"]
            places = packed["places.rows"] * packed["places.scale"]
        self._places: Array = places[:MOST_PIECES].reshape(-1, DIMENSIONS)
        self._layers = _open(folder / "layers.onnx")

    def embed(self, texts: Sequence[str]) -> Array:
        """One row for each text, each of length one."""
        return np.stack([self._vector(text) for text in texts])

    def _vector(self, text: str) -> Array:
        pieces = self._vocabulary.numbers(text, MOST_PIECES)
        rows, scale = (packed.take(pieces, axis=0) for packed in self._words)
        state = (rows * scale).reshape(-1, DIMENSIONS) + self._places[: len(pieces)]
        [vector] = self._layers.run(None, {"pieces": state})
        unit: Array = vector / math.sqrt(vector @ vector)
        return unit


def _open(path: Path) -> onnxruntime.InferenceSession:
    """The layers, ready to run in the thread that asks: for texts this short, more are slower."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.log_severity_level = _ERRORS_ONLY
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def check_weights(folder: Path = WEIGHTS) -> None:
    """Compare the files with their checksums. Raises MailError."""
    for line in (folder / "SHA256SUMS").read_text("ascii").splitlines():
        wanted, name = line.split()
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != wanted:
            raise MailError(f"{name} of the bundled model is damaged; install Postroom again")
