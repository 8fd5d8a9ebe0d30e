"""Cyrus on loopback, the second kind of IMAP server. It starts only as root."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.servers.certificates import make_certificate
from tests.servers.dovecot import PASSWORD, USERS
from tests.servers.folders import open_folder
from tests.servers.ports import free_port, wait_for_greeting

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
delete_mode: immediate
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
{more}"""
_MASTER = """START {{
  recover cmd="ctl_cyrusdb -C {home}/imapd.conf -r"
}}
SERVICES {{
  imap cmd="{bin}imapd -T 3600 -C {home}/imapd.conf" listen="127.0.0.1:{imap}" prefork=1
  {name} cmd="{command} -C {home}/imapd.conf" listen="127.0.0.1:{port}" prefork=1
}}
EVENTS {{
}}
"""
# A process that is idle for longer than -T exits, and sometimes its master does not notice.
_FOLDERS = ("conf", "conf/socket", "conf/proc", "conf/log", "conf/db", "data")


@dataclass
class CyrusMaster(ABC):
    """A Cyrus that runs while its `with` block does, with IMAP and one more service."""

    home: Path = field(init=False)
    imap: int = field(init=False)
    port: int = field(init=False)
    process: subprocess.Popen[bytes] = field(init=False, repr=False)

    @abstractmethod
    def settings(self) -> str:
        """More lines of its configuration."""

    @abstractmethod
    def service(self, programs: str) -> tuple[str, str]:
        """The name of the additional service, and the command that runs it."""

    def __enter__(self) -> Self:
        self.home = open_folder()
        self.imap, self.port = free_port(), free_port()
        self._write()
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
            self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait(self) -> None:
        """Wait until it answers."""
        wait_for_greeting(self.imap, self.process, self.home / "stderr.log")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)
        self._passwords.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def _write(self) -> None:
        for name in _FOLDERS:
            (self.home / name).mkdir()
        programs = _unpacked()
        name, command = self.service(programs)
        (self.home / "imapd.conf").write_text(_IMAPD.format(home=self.home, more=self.settings()))
        (self.home / "cyrus.conf").write_text(
            _MASTER.format(
                home=self.home,
                bin=programs,
                imap=self.imap,
                name=name,
                command=command,
                port=self.port,
            )
        )
        for path in (self.home, *self.home.rglob("*")):
            shutil.chown(path, "cyrus", "mail")


@dataclass
class Cyrus(CyrusMaster):
    """Cyrus with IMAP over TLS as the additional service."""

    certificate: Path = field(init=False)

    @property
    def imaps(self) -> int:
        return self.port

    def settings(self) -> str:
        self.certificate, key = make_certificate(self.home)
        return (
            f"expunge_mode: immediate\ntls_server_cert: {self.certificate}\ntls_server_key: {key}\n"
        )

    def service(self, programs: str) -> tuple[str, str]:
        return "imaps", f"{programs}imapd -T 3600 -s"


def _unpacked() -> str:
    """The folder with Cyrus's programs, which Debian cannot install beside Dovecot."""
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
