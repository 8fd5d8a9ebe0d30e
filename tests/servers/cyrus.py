"""Cyrus on loopback: the other kind of IMAP server. It starts only as root."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.servers.certificates import make_certificate
from tests.servers.dovecot import PASSWORD, USERS
from tests.servers.folders import open_folder
from tests.servers.ports import free_ports, wait_for_greeting

ROOT = Path(__file__).parents[2]

_IMAPD = """configdirectory: {home}/conf
partition-default: {home}/data
defaultpartition: default
admins: admin
virtdomains: off
altnamespace: yes
unixhierarchysep: yes
sasl_pwcheck_method: saslauthd
sasl_saslauthd_path: {home}/mux
sasl_mech_list: PLAIN LOGIN
allowplaintext: yes
tls_server_cert: {certificate}
tls_server_key: {key}
delete_mode: immediate
expunge_mode: immediate
specialusealways: yes
autocreate_users: anyone
autocreate_quota: 0
autocreate_inbox_folders: Drafts|Sent|Trash|Archive|Junk
autocreate_subscribe_folders: Drafts|Sent|Trash|Archive|Junk
xlist-drafts: Drafts
xlist-sent: Sent
xlist-trash: Trash
xlist-archive: Archive
xlist-junk: Junk
idlesocket: {home}/conf/socket/idle
lmtpsocket: {home}/conf/socket/lmtp
"""
_MASTER = """START {{
  recover cmd="ctl_cyrusdb -C {home}/imapd.conf -r"
}}
SERVICES {{
  imap cmd="{bin}imapd -T 3600 -C {home}/imapd.conf" listen="127.0.0.1:{imap}" prefork=1
  imaps cmd="{bin}imapd -T 3600 -s -C {home}/imapd.conf" listen="127.0.0.1:{imaps}" prefork=1
}}
EVENTS {{
}}
"""
# A process that waits for work longer than -T leaves, and sometimes its master does not notice.
_FOLDERS = ("conf", "conf/socket", "conf/proc", "conf/log", "conf/db", "data")


@dataclass
class Cyrus:
    """A server that runs while its `with` block does."""

    home: Path = field(init=False)
    imap: int = field(init=False)
    imaps: int = field(init=False)
    certificate: Path = field(init=False)
    process: subprocess.Popen[bytes] = field(init=False, repr=False)

    def __enter__(self) -> Self:
        self.home = open_folder()
        self.certificate, key = make_certificate(self.home)
        self.imap, self.imaps = free_ports(2)
        self._write(key, _unpacked())
        self._passwords = _check_passwords(self.home / "mux")
        self.process = subprocess.Popen(
            [
                *("/usr/lib/cyrus/bin/master", "-C", f"{self.home}/imapd.conf", "-D"),
                *("-M", f"{self.home}/cyrus.conf", "-p", f"{self.home}/master.pid"),
            ],
            stderr=(self.home / "stderr.log").open("wb"),
            cwd=self.home,
            # A master that ends sends SIGTERM to its whole process group.
            start_new_session=True,
        )
        try:
            wait_for_greeting(self.imap, self.process, self.home / "stderr.log")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)
        self._passwords.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def _write(self, key: Path, programs: str) -> None:
        for name in _FOLDERS:
            (self.home / name).mkdir()
        (self.home / "imapd.conf").write_text(
            _IMAPD.format(home=self.home, certificate=self.certificate, key=key)
        )
        (self.home / "cyrus.conf").write_text(
            _MASTER.format(home=self.home, bin=programs, imap=self.imap, imaps=self.imaps)
        )
        for path in (self.home, *self.home.rglob("*")):
            shutil.chown(path, "cyrus", "mail")


def _unpacked() -> str:
    """Where Cyrus keeps the programs that Debian cannot install beside Dovecot."""
    script = subprocess.run(
        [ROOT / "scripts" / "cyrus"], check=True, capture_output=True, text=True, timeout=300
    )
    return script.stdout.strip()


def _check_passwords(path: Path) -> socket.socket:
    """Answer as saslauthd does: four counted strings in, OK or NO out."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    os.chmod(path, 0o777)
    listening.listen(50)

    def answer(client: socket.socket) -> None:
        with client:
            user, password, _, _ = (_counted(client) for _ in range(4))
            verdict = b"OK" if user in USERS and password == PASSWORD else b"NO"
            client.sendall(struct.pack("!H", len(verdict)) + verdict)

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return listening


def _counted(client: socket.socket) -> str:
    (size,) = struct.unpack("!H", client.recv(2, socket.MSG_WAITALL))
    return client.recv(size, socket.MSG_WAITALL).decode() if size else ""
