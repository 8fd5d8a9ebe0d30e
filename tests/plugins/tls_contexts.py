"""The HTTP clients of a test process share one TLS context.

Each client loads the certificates of the system otherwise, which takes longer than most requests,
and nearly all servers of the tests use plain HTTP.
"""

from __future__ import annotations

import os
import ssl
from functools import cache

import httpcore2
import pytest

_make = httpcore2.default_ssl_context


@cache
def _made(file: str | None, folder: str | None, trust_env: bool) -> ssl.SSLContext:
    return _make(_trust_env=trust_env)


def shared_context(*, _trust_env: bool = True) -> ssl.SSLContext:
    """The context for these settings; a test may name other certificates in the environment."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    return _made(file, folder, _trust_env)


def pytest_configure(config: pytest.Config) -> None:
    httpcore2.default_ssl_context = shared_context
