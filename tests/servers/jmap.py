"""Cyrus on loopback with JMAP: mail and submission, but no push. It starts only as root."""

from __future__ import annotations

import shutil
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.servers.cyrus import _check_passwords, _unpacked
from tests.servers.folders import open_folder
from tests.servers.ports import free_ports, wait_for_greeting

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
httpmodules: jmap
httpprettytelemetry: no
conversations: yes
delete_mode: immediate
expunge_mode: delayed
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
jmap_nonstandard_extensions: no
smtp_backend: host
smtp_host: 127.0.0.1:{smtp}
idlesocket: {home}/conf/socket/idle
lmtpsocket: {home}/conf/socket/lmtp
"""
_MASTER = """START {{
  recover cmd="ctl_cyrusdb -C {home}/imapd.conf -r"
}}
SERVICES {{
  imap cmd="{bin}imapd -T 3600 -C {home}/imapd.conf" listen="127.0.0.1:{imap}" prefork=1
  http cmd="/usr/lib/cyrus/bin/httpd -C {home}/imapd.conf" listen="127.0.0.1:{http}" prefork=1
}}
EVENTS {{
}}
"""
_FOLDERS = ("conf", "conf/socket", "conf/proc", "conf/log", "conf/db", "data")


@dataclass
class JmapServer:
    """A server that runs while its `with` block does; it submits mail to *smtp*."""

    smtp: int = 25
    home: Path = field(init=False)
    imap: int = field(init=False)
    http: int = field(init=False)
    process: subprocess.Popen[bytes] = field(init=False, repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http}"

    def __enter__(self) -> Self:
        self.home = open_folder()
        self.imap, self.http = free_ports(2)
        for name in _FOLDERS:
            (self.home / name).mkdir()
        imapd = _IMAPD.format(home=self.home, smtp=self.smtp)
        (self.home / "imapd.conf").write_text(imapd)
        (self.home / "cyrus.conf").write_text(
            _MASTER.format(home=self.home, bin=_unpacked(), imap=self.imap, http=self.http)
        )
        for path in (self.home, *self.home.rglob("*")):
            shutil.chown(path, "cyrus", "mail")
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
            self._wait_for_http()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_for_http(self) -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(f"{self.url}/jmap/", timeout=5).close()
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("Cyrus does not answer over HTTP")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(20)
        self._passwords.close()
        shutil.rmtree(self.home, ignore_errors=True)
