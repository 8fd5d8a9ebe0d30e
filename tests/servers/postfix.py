"""A real Postfix on loopback that relays all mail to one port. Needs root and the package."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.servers.folders import open_folder
from tests.servers.ports import free_port

MAIN = """\
compatibility_level = 3.6
queue_directory = {home}/queue
data_directory = {home}/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = mx.example.com
mydestination =
mynetworks = 127.0.0.0/8
default_transport = smtp:[127.0.0.1]:{target}
relay_transport = smtp:[127.0.0.1]:{target}
smtp_tls_security_level = none
smtputf8_enable = yes
alias_maps =
local_recipient_maps =
maillog_file = {home}/mail.log
maillog_file_prefixes = {home}
disable_dns_lookups = yes
smtp_host_lookup = native
"""
MASTER = """\
127.0.0.1:{port} inet n - n - - smtpd
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
relay unix - - n - - smtp
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
"""


@contextmanager
def postfix(target: int, transports: Mapping[str, int] | None = None) -> Iterator[int]:
    """Start one that hands everything to the target port; gives its own port.

    Mail for the domains in *transports* goes to other ports.

    Its folder has a short name: the paths of its sockets have at most 107 characters.
    """
    home = open_folder()
    home.chmod(0o755)
    for name in ("etc", "queue", "data"):
        (home / name).mkdir()
    shutil.chown(home / "data", "postfix")
    port = free_port()
    main = MAIN.format(home=home, target=target)
    if transports is not None:
        rows = [f"{domain} smtp:[127.0.0.1]:{at}\n" for domain, at in transports.items()]
        (home / "etc" / "cells").write_text("".join(rows))
        main += f"relay_domains = {' '.join(transports)}\n"
        main += f"transport_maps = texthash:{home}/etc/cells\n"
    (home / "etc" / "main.cf").write_text(main)
    (home / "etc" / "master.cf").write_text(MASTER.format(port=port))
    words = ["/usr/sbin/postfix", "-c", str(home / "etc")]
    subprocess.run([*words, "start"], check=True, capture_output=True)
    try:
        _wait_for(port, home)
        yield port
    finally:
        subprocess.run([*words, "abort"], check=False, capture_output=True)
        shutil.rmtree(home, ignore_errors=True)


def _wait_for(port: int, home: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as probe:
                if probe.recv(100).startswith(b"220"):
                    return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError((home / "mail.log").read_text())
