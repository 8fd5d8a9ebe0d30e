"""Packages that are not installed with Postroom unless they are asked for: `postroom[pdf]`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from postroom.errors import FeatureDisabled


class Extra(NamedTuple):
    """The modules of an extra, and what needs them."""

    modules: tuple[str, ...]
    feature: str


EXTRAS = {
    "embeddings": Extra(
        ("numpy", "onnxruntime", "postroom_model"), "search by meaning with the bundled model"
    ),
    "index": Extra(("numpy",), "an index of large mailboxes"),
    "pdf": Extra(("pypdfium2",), "the text of PDFs"),
    "postgres": Extra(("psycopg",), "a PostgreSQL database"),
    "s3": Extra(("obstore",), "object storage"),
}
"""The extras of pyproject.toml; `all` has all of them."""


def is_installed(extra: str) -> bool:
    """Whether the packages of an extra are there."""
    return all(find_spec(module) is not None for module in EXTRAS[extra].modules)


def missing(extra: str, feature: str = "") -> str:
    """The message for an extra that is not installed, and a feature if not its usual one."""
    return (
        f"{feature or EXTRAS[extra].feature} needs packages that are not installed; "
        f"install them with: pip install 'postroom[{extra}]'"
    )


def require(extra: str) -> None:
    """Raise FeatureDisabled if the packages of an extra are not installed."""
    if not is_installed(extra):
        raise FeatureDisabled(missing(extra))
