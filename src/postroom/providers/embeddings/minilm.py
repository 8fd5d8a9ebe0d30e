"""all-MiniLM-L6-v2 in numpy: a text becomes a vector whose direction is its meaning."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from postroom.errors import MailError
from postroom.providers.embeddings.wordpiece import Vocabulary

Array = NDArray[np.float32]

WEIGHTS = Path(__file__).parent / "weights"
DIMENSIONS = 384
MOST_PIECES = 256
"""What the model was trained to read of a text; the rest is not looked at."""

_LAYERS = 6
_HEADS = 12
_SIZE = DIMENSIONS // _HEADS
_BLOCK = 64
_TINY = np.float32(1e-12)


class MiniLM:
    """The model in memory. Rows of words stay whole numbers, the layers are unpacked."""

    def __init__(self, folder: Path = WEIGHTS) -> None:
        check_weights(folder)
        self._vocabulary = Vocabulary(folder / "vocabulary.txt")
        with np.load(folder / "minilm.npz") as packed:
            self._packed = {name: packed[name] for name in packed.files}

    def embed(self, texts: Sequence[str]) -> Array:
        """One row for each text, each of length one."""
        pieces = [self._vocabulary.numbers(text, MOST_PIECES) for text in texts]
        ends = np.cumsum([len(row) for row in pieces])
        spans = list(zip([0, *ends[:-1]], ends, strict=True))
        # The texts lie end to end: only attention needs to know where one stops.
        state = self._start(pieces)
        for number in range(_LAYERS):
            state = self._layer(number, state, spans)
        vectors = np.stack([state[start:end].mean(axis=0) for start, end in spans])
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        unit: Array = vectors / lengths[:, None]
        return unit

    def _start(self, pieces: list[list[int]]) -> Array:
        words = np.concatenate([np.array(row) for row in pieces])
        places = np.concatenate([np.arange(len(row)) for row in pieces])
        return self._norm("start", self._rows("words", words) + self._rows("places", places))

    def _rows(self, name: str, numbers: NDArray[np.int64]) -> Array:
        rows: Array = self._packed[f"{name}.rows"][numbers] * self._packed[f"{name}.scale"][numbers]
        return rows.reshape(len(numbers), DIMENSIONS)

    def _layer(self, number: int, state: Array, spans: list[tuple[int, int]]) -> Array:
        name = f"layer{number}"
        reads = self._dense(f"{name}.reads", state)
        seen = np.concatenate([_attend(reads[start:end]) for start, end in spans])
        state = self._norm(f"{name}.mixed", self._dense(f"{name}.mix", seen) + state)
        wide = _gelu(self._dense(f"{name}.widen", state))
        return self._norm(f"{name}.done", self._dense(f"{name}.narrow", wide) + state)

    def _dense(self, name: str, state: Array) -> Array:
        blocks, bias = self._layers[name]
        result: Array = (state @ blocks).transpose(1, 0, 2).reshape(len(state), -1)
        result += bias
        return result

    def _norm(self, name: str, state: Array) -> Array:
        state -= state.mean(axis=1, keepdims=True)
        variance = np.einsum("ij,ij->i", state, state)[:, None] / np.float32(DIMENSIONS)
        state /= np.sqrt(variance + _TINY)
        state *= self._packed[f"{name}.weight"]
        state += self._packed[f"{name}.bias"]
        return state

    @cached_property
    def _layers(self) -> dict[str, tuple[Array, Array]]:
        use_one_thread()
        ends = ".rows"
        layers = [n.removesuffix(ends) for n in self._packed if n[0] == "l" and n.endswith(ends)]
        return {name: (self._blocks(name), self._packed[f"{name}.bias"]) for name in layers}

    def _blocks(self, name: str) -> Array:
        """The weights of a layer, cut into narrow blocks.

        A product with a short text is then small enough for OpenBLAS to do at once, without
        copying the weights into another order first: a question takes half of the time.
        """
        weights = self._packed[f"{name}.rows"] * self._packed[f"{name}.scale"]
        blocks = weights.reshape(len(weights) // _BLOCK, _BLOCK, -1)
        return np.ascontiguousarray(blocks.transpose(0, 2, 1))


def _attend(reads: Array) -> Array:
    """Let every piece of one text look at all of its pieces."""
    length = len(reads)
    query, key, value = reads.reshape(length, 3, _HEADS, _SIZE).transpose(1, 2, 0, 3)
    scores: Array = query @ key.transpose(0, 2, 1)
    scores *= np.float32(_SIZE**-0.5)
    scores -= scores.max(axis=2, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=2, keepdims=True)
    seen: Array = scores @ value
    return seen.transpose(1, 0, 2).reshape(length, DIMENSIONS)


def _gelu(x: Array) -> Array:
    """x times the normal distribution at x, by its approximation with tanh."""
    inner = x * x
    inner *= np.float32(0.044715)
    inner += np.float32(1)
    inner *= x
    inner *= np.float32(0.7978845608)
    np.tanh(inner, out=inner)
    inner += np.float32(1)
    inner *= x
    inner *= np.float32(0.5)
    return inner


def check_weights(folder: Path = WEIGHTS) -> None:
    """Compare the files with their checksums. Raises MailError."""
    for line in (folder / "SHA256SUMS").read_text("ascii").splitlines():
        wanted, name = line.split()
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != wanted:
            raise MailError(f"{name} of the bundled model is damaged; install Postroom again")


def use_one_thread() -> None:
    """Tell numpy's OpenBLAS to use one thread: for texts this short, more are slower."""
    import ctypes
    from importlib import import_module

    library = ctypes.CDLL(import_module("numpy._core._multiarray_umath").__file__)
    for name in ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads"):
        if hasattr(library, name):
            getattr(library, name)(1)
            return
