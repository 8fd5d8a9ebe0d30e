"""The layers of the bundled model as an ONNX graph with integer arithmetic.

Weights have 7 bits: with 8, sums would overflow on processors without VNNI. Two measures keep the
precision. Columns of a layer's input that tend to be large are scaled down, and their weights up;
and where rows differ most in size, each row is divided by its maximum before it is rounded. For a
short text the cost of a node is that of its numbers, so operations on weights are done in advance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto, helper, numpy_helper

HEADS, SIZE = 12, 32
LARGEST = 63
TINY = 1e-12
Tensors = dict[str, np.ndarray]
Factors = np.ndarray | float


def layers(tensors: Tensors, count: int, examples: Sequence[np.ndarray]) -> bytes:
    """The model from token embeddings to one vector, as a file."""
    graph = _Graph(tensors, _columns(tensors, count, examples))
    state = graph.norm("start", "pieces")
    for number in range(count):
        name = f"layer{number}"
        seen = graph.attend(graph.reads(name, state))
        mixed = graph.add("Add", graph.mix(name, seen), state)
        state = graph.norm(f"{name}.mixed", mixed)
        wide = graph.add("Gelu", graph.dense(f"{name}.widen", state), approximate="tanh")
        done = graph.add("Add", graph.narrow(f"{name}.narrow", wide), state)
        state = graph.norm(f"{name}.done", done)
    return graph.file(graph.add("ReduceMean", state, graph.whole("first", 0), keepdims=0))


class _Graph:
    """Collects nodes; each method returns the name of its output."""

    def __init__(self, tensors: Tensors, columns: Tensors) -> None:
        self._tensors = tensors
        self._columns = columns
        self._nodes: list[object] = []
        self._known: dict[str, object] = {}

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        names = [f"{kind}{len(self._nodes)}.{at}" for at in range(outputs)]
        self._nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names[0]

    def keep(self, name: str, value: np.ndarray) -> str:
        value = np.ascontiguousarray(value)
        self._known[name] = numpy_helper.from_array(value, name)
        return name

    def whole(self, name: str, *values: int) -> str:
        return self.keep(name, np.array(values, np.int64))

    def norm(self, name: str, state: str) -> str:
        parts = [self.keep(f"{name}.{p}", self._tensors[f"{name}.{p}"]) for p in ("weight", "bias")]
        return self.add("LayerNormalization", state, *parts, axis=-1, epsilon=TINY)

    def reads(self, name: str, state: str) -> str:
        """Queries, keys and values; the columns of values are scaled as `mix` needs them."""
        smaller = np.ones(3 * HEADS * SIZE, np.float32)
        smaller[-HEADS * SIZE :] = 1 / self._columns[f"{name}.mix"]
        return self.dense(f"{name}.reads", state, smaller)

    def mix(self, name: str, seen: str) -> str:
        columns = self._columns[f"{name}.mix"]
        return self._biased(f"{name}.mix", self._summed(f"{name}.mix", seen, columns))

    def narrow(self, name: str, state: str) -> str:
        """Like `dense`, for rows that differ much in size."""
        most = self.add("ReduceMax", self.add("Abs", state), self.whole("last", -1), keepdims=1)
        summed = self._summed(name, self.add("Div", state, most))
        return self._biased(name, self.add("Mul", summed, most))

    def dense(self, name: str, state: str, results: Factors = 1.0) -> str:
        """Multiply with the weights of a layer, and scale the results."""
        columns = self._columns[name]
        state = self.add("Mul", state, self.keep(f"{name}.columns", 1 / columns))
        return self._biased(name, self._summed(name, state, columns, results), results)

    def _biased(self, name: str, summed: str, results: Factors = 1.0) -> str:
        bias = (self._tensors[f"{name}.bias"] * results).astype(np.float32)
        return self.add("Add", summed, self.keep(f"{name}.bias", bias))

    def _summed(self, name: str, state: str, columns: Factors = 1.0, results: Factors = 1.0) -> str:
        weight = self._tensors[f"{name}.weight"] * columns
        scale = np.abs(weight).max(axis=1) / LARGEST
        whole = np.rint(weight / scale[:, None]).astype(np.int8).T
        rounded = self.add("DynamicQuantizeLinear", state, outputs=3)
        step, zero = rounded[:-1] + "1", rounded[:-1] + "2"
        sums = self.add("MatMulInteger", rounded, self.keep(f"{name}.whole", whole), zero)
        scale = (scale * results).astype(np.float32)
        scales = self.add("Mul", step, self.keep(f"{name}.scale", scale))
        return self.add("Mul", self.add("Cast", sums, to=TensorProto.FLOAT), scales)

    def attend(self, reads: str) -> str:
        """Self-attention over all tokens of a text."""
        apart = self.add("Reshape", reads, self.whole("apart", -1, 3, HEADS, SIZE))
        apart = self.add("Transpose", apart, perm=[1, 2, 0, 3])
        query = self.add("Split", apart, outputs=3, axis=0, num_outputs=3)
        key, value = query[:-1] + "1", query[:-1] + "2"
        scores = self.add("MatMul", query, self.add("Transpose", key, perm=[0, 1, 3, 2]))
        size = self.keep("size", np.array(SIZE**-0.5, np.float32))
        scores = self.add("Softmax", self.add("Mul", scores, size), axis=-1)
        seen = self.add("Transpose", self.add("MatMul", scores, value), perm=[0, 2, 1, 3])
        return self.add("Reshape", seen, self.whole("together", -1, HEADS * SIZE))

    def file(self, result: str) -> bytes:
        pieces = helper.make_tensor_value_info("pieces", TensorProto.FLOAT, ["n", HEADS * SIZE])
        vector = helper.make_tensor_value_info(result, TensorProto.FLOAT, [HEADS * SIZE])
        known = list(self._known.values())
        graph = helper.make_graph(self._nodes, "minilm", [pieces], [vector], known)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
        model.ir_version = 10
        return model.SerializeToString(deterministic=True)


def _columns(tensors: Tensors, count: int, examples: Sequence[np.ndarray]) -> Tensors:
    """For each layer, the divisor of each column of its input."""
    seen: Tensors = {}
    for example in examples:
        state = _norm(tensors, "start", example)
        for number in range(count):
            state = _layer(tensors, f"layer{number}", state, seen)
    return {name: _divisors(tensors[f"{name}.weight"], most) for name, most in seen.items()}


def _divisors(weight: np.ndarray, most: np.ndarray) -> np.ndarray:
    divisors = np.sqrt(most / np.abs(weight).max(axis=0)).clip(1e-3)
    return (divisors / divisors.mean()).astype(np.float32)


def _layer(tensors: Tensors, name: str, state: np.ndarray, seen: Tensors) -> np.ndarray:
    """One layer as it was trained, recording the maximum of each input column."""

    def dense(part: str, read: np.ndarray) -> np.ndarray:
        whole = f"{name}.{part}"
        seen[whole] = np.maximum(seen.get(whole, 0), np.abs(read).max(axis=0))
        return read @ tensors[f"{whole}.weight"].T + tensors[f"{whole}.bias"]

    reads = dense("reads", state).reshape(len(state), 3, HEADS, SIZE)
    query, key, value = reads.transpose(1, 2, 0, 3)
    scores = np.exp(query @ key.transpose(0, 2, 1) * SIZE**-0.5)
    scores /= scores.sum(axis=2, keepdims=True)
    mixed = dense("mix", (scores @ value).transpose(1, 0, 2).reshape(len(state), -1))
    state = _norm(tensors, f"{name}.mixed", mixed + state)
    wide = dense("widen", state)
    wide = wide * (1 + np.tanh(0.7978845608 * (wide + 0.044715 * wide**3))) / 2
    return _norm(tensors, f"{name}.done", dense("narrow", wide) + state)


def _norm(tensors: Tensors, name: str, state: np.ndarray) -> np.ndarray:
    state = state - state.mean(axis=1, keepdims=True)
    state = state / np.sqrt((state * state).mean(axis=1, keepdims=True) + TINY)
    return state * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]
