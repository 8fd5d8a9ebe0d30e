"""Dovecot on loopback: real IMAP with TLS, in a folder of its own, as root or not."""

from __future__ import annotations

import base64
import grp
import hashlib
import hmac
import json
import os
import pwd
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.servers.certificates import make_certificate
from tests.servers.folders import open_folder
from tests.servers.ports import free_port, wait_for_greeting

USERS = ("alice", "bob", "carol", "dave")
PASSWORD = "correct horse"
_TOKEN_SECRET = b"test-oauth-secret"
_MAX_NAMES = 50_000
"""A file has at most 65,000 names on some systems."""

_CONFIGURATION = """
base_dir = {home}/run
state_dir = {home}/run
protocols = imap
listen = 127.0.0.1
log_path = {home}/dovecot.log
instance_name = test-{imap}
default_internal_user = {internal}
default_internal_group = {internal_group}
default_login_user = {login}
ssl = yes
ssl_cert = <{certificate}
ssl_key = <{key}
ssl_dh =
disable_plaintext_auth = no
auth_mechanisms = plain login xoauth2 oauthbearer
auth_failure_delay = 0
mail_location = {format}:~/mail{options}
mail_uid = {owner}
mail_gid = {group}
first_valid_uid = 1
first_valid_gid = 1
mail_fsync = never
{plugins}
passdb {{
  driver = passwd-file
  mechanisms = plain login
  args = scheme=PLAIN username_format=%u {home}/users
}}
passdb {{
  driver = oauth2
  mechanisms = xoauth2 oauthbearer
  args = {home}/oauth2.conf
}}
userdb {{
  driver = passwd-file
  args = username_format=%u {home}/users
}}
namespace inbox {{
  inbox = yes
  separator = {separator}
  prefix = {prefix}
  mailbox Drafts {{
    auto = subscribe
    special_use = \\Drafts
  }}
  mailbox Gesendet {{
    auto = subscribe
    special_use = \\Sent
  }}
  mailbox Papierkorb {{
    auto = subscribe
    special_use = \\Trash
  }}
  mailbox Junk {{
    auto = subscribe
    special_use = \\Junk
  }}
  mailbox Archive {{
    auto = subscribe
    special_use = \\Archive
  }}
}}
protocol imap {{
  {imap_plugins}
  {capability}
  mail_max_userip_connections = 100
}}
service imap-login {{
  chroot =
  service_count = 0
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = {imaps}
    ssl = yes
  }}
}}
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
service stats {{
  chroot =
}}
"""


@dataclass
class Dovecot:
    """A server that runs while its `with` block does.

    `capability` replaces the announced capabilities, so that a client finds fewer of them. With
    `prefix`, all mailboxes but INBOX have names that begin with it.
    """

    compress: bool = True
    capability: str = ""
    format: str = "maildir"
    separator: str = "/"
    prefix: str = ""
    home: Path = field(init=False)
    imap: int = field(init=False)
    imaps: int = field(init=False)
    certificate: Path = field(init=False)
    process: subprocess.Popen[bytes] = field(init=False, repr=False)

    def __enter__(self) -> Self:
        self.home = open_folder()
        self.certificate, key = make_certificate(self.home)
        self.imap, self.imaps = free_port(), free_port()
        self._write(key)
        self.process = subprocess.Popen(
            ["/usr/sbin/dovecot", "-F", "-c", str(self.home / "dovecot.conf")],
            stderr=(self.home / "stderr.log").open("wb"),
        )
        try:
            wait_for_greeting(self.imap, self.process, self.home / "dovecot.log")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        self.process.wait(60)
        shutil.rmtree(self.home, ignore_errors=True)

    def _kill(self) -> None:
        """Kill it at once: a regular shutdown takes a second, and there is nothing to save."""
        pid = self.process.pid
        self.process.send_signal(signal.SIGSTOP)  # so that it starts no other processes meanwhile
        with suppress(OSError):
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
        self.process.kill()

    def fill(self, user: str, mailbox: str, count: int, raw: bytes) -> None:
        """Create a mailbox of many identical messages, faster than by delivery."""
        box = self.home / "home" / user / "mail" / f".{mailbox}"
        firsts = [box / "cur" / f"{n}.0.x:2," for n in range(0, count, _MAX_NAMES)]
        for name in ("cur", "new", "tmp"):
            (box / name).mkdir(parents=True)
        for number in range(count):
            first = firsts[number // _MAX_NAMES]
            if number % _MAX_NAMES:
                os.link(first, box / "cur" / f"{number}.0.x:2,")
            else:
                first.write_bytes(raw)
        if os.getuid() == 0:
            roles = _roles()
            for path in (box, *box.iterdir(), *firsts):
                shutil.chown(path, roles["owner"], roles["group"])

    def _write(self, key: Path) -> None:
        roles = _roles()
        owner, group = roles["owner"], roles["group"]
        ids = f"{pwd.getpwnam(owner).pw_uid}:{grp.getgrnam(group).gr_gid}"
        homes = self.home / "home"
        homes.mkdir()
        if os.getuid() == 0:
            shutil.chown(homes, owner, group)
        (self.home / "users").write_text(
            "".join(f"{user}:{{PLAIN}}{PASSWORD}:{ids}::{homes}/{user}::\n" for user in USERS)
        )
        self._write_token_check()
        plugins = ("mail_plugins = zlib", "mail_plugins = zlib imap_zlib")
        (self.home / "dovecot.conf").write_text(
            _CONFIGURATION.format(
                **roles,
                home=self.home,
                certificate=self.certificate,
                key=key,
                imap=self.imap,
                imaps=self.imaps,
                format=self.format,
                separator=self.separator,
                prefix=self.prefix,
                options="",
                plugins=plugins[0] if self.compress else "",
                imap_plugins=plugins[1] if self.compress else "",
                capability=f"imap_capability = {self.capability}" if self.capability else "",
            )
        )

    def _write_token_check(self) -> None:
        keys = self.home / "keys" / "default" / "HS256"
        keys.mkdir(parents=True)
        (keys / "default").write_text(base64.b64encode(_TOKEN_SECRET).decode())
        (self.home / "oauth2.conf").write_text(
            "introspection_mode = local\n"
            f"local_validation_key_dict = fs:posix:prefix={self.home}/keys/\n"
            "username_attribute = sub\n"
        )


def _roles() -> dict[str, str]:
    """The user of each process: Dovecot's own users under root, else the current user."""
    if os.getuid() == 0:
        return {
            "owner": "mail",
            "group": "mail",
            "internal": "dovecot",
            "internal_group": "dovecot",
            "login": "dovenull",
        }
    me, us = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
    return {"owner": me, "group": us, "internal": me, "internal_group": us, "login": me}


def access_token(user: str) -> str:
    """A token that this Dovecot accepts for XOAUTH2."""

    def part(value: dict[str, object]) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    body = part({"alg": "HS256", "typ": "JWT"}) + b"." + part({"sub": user, "exp": 4102444800})
    signature = hmac.digest(_TOKEN_SECRET, body, hashlib.sha256)
    return (body + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()
