"""The entry point of the restricted process: drop privileges, then do the work."""

from __future__ import annotations

import ctypes
import resource
import sys
from importlib import import_module

_NO_NETWORK = 0x40000000 | 0x10000000
"""CLONE_NEWNET in a CLONE_NEWUSER, which needs no privilege."""


def main() -> None:
    """Read bytes, call a function on them, write the text it returns, or why there is none."""
    module, name, argument, cpu_s, memory_bytes, *imports = sys.argv[1:]
    _limit(int(cpu_s), int(memory_bytes))
    work = getattr(import_module(module), name)
    for needed in imports:
        import_module(needed)
    _shut_the_doors()
    data = sys.stdin.buffer.read()
    try:
        text = work(data, int(argument))
    except Exception as error:  # noqa: BLE001, whatever it is, it is the answer
        sys.stdout.buffer.write(_shown(error).encode("utf-8", "replace"))
        sys.exit(1)
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))


def _limit(cpu_s: int, memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _shut_the_doors() -> None:
    """Forbid opening files; open ones can still be used."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    # In addition an empty network namespace, where the kernel allows it.
    unshare = getattr(ctypes.CDLL(None), "unshare", None)
    if unshare is not None:
        unshare(_NO_NETWORK)


def _shown(error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    return text or type(error).__name__
