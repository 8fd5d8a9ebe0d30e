"""The bundled model compared with the original; `golden/embeddings.json` has some of
its vectors.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from postroom.errors import MailError
from postroom.providers.embeddings import (
    DIMENSIONS,
    MAX_PIECES,
    BundledEmbedder,
    MiniLM,
    Vocabulary,
    weights_folder,
)

CASES = json.loads((Path(__file__).parents[2] / "golden" / "embeddings.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def model() -> MiniLM:
    return MiniLM()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"][:20])
def test_a_text_is_tokenized_like_the_original(case):
    vocabulary = Vocabulary(weights_folder() / "vocabulary.txt")

    assert case["pieces"] == vocabulary.numbers(case["text"], MAX_PIECES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"][:20])
def test_a_vector_is_similar_to_the_original(model, case):
    [vector] = model.embed([case["text"]])

    original = np.array(case["vector"])
    assert DIMENSIONS == len(vector)
    assert float(vector @ original) / np.linalg.norm(original) > 0.99


def test_a_batch_gives_the_same_vectors_as_single_texts(model):
    texts = [case["text"] for case in CASES] + ["", "a"]

    together = model.embed(texts)

    alone = np.concatenate([model.embed([text]) for text in texts])
    assert np.allclose(together, alone, atol=1e-5)
    assert np.allclose(1, np.linalg.norm(together, axis=1), atol=1e-5)


def test_damaged_weights_are_noticed(tmp_path):
    folder = tmp_path / "weights"
    shutil.copytree(weights_folder(), folder)
    with (folder / "vocabulary.txt").open("ab") as file:
        file.write(b"x")

    with pytest.raises(MailError, match=r"vocabulary\.txt of the bundled model is damaged"):
        MiniLM(folder)


async def test_similar_meaning_is_nearer_than_common_words():
    question, answer, other = (
        np.frombuffer(vector, "<f4")
        for vector in await BundledEmbedder().embed(
            [
                "When is the Portuguese office shut for Christmas?",
                "The Lisbon branch closes on the 24th of December.",
                "The office plants are watered at Christmas, too.",
            ]
        )
    )

    assert question @ answer > question @ other
