"""Starts a command in a fork of `fork_server.py` and passes on streams, signals and exit code.

    python -I -S launcher.py SOCKET WORD…

It imports as little as possible. If it is killed, the command is killed too.
"""

import array
import json
import os
import signal
import socket
import sys

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)  # until there is a process to pass them to
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    wish = (json.dumps([sys.argv[2:], dict(os.environ), os.getcwd()]) + "\n").encode()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
    sent = connection.sendmsg([wish], rights)
    connection.sendall(wish[sent:])
    lines = connection.makefile("r")
    pid = int(lines.readline())
    for number in _FORWARDED:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (
        0,
        1,
        2,
    ):  # only the command may hold these open, so that a closed pipe is detected
        os.dup2(nothing, stream)
    code = int(lines.readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
