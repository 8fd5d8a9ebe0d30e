"""Live IMAP accounts, in the variables of contract 002: MAIL_IMAP_<ACCOUNT>_HOST and so on.

The name of an account is what stands in the middle, in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from postroom.config import readers
from postroom.config.readers import Reader, whole_number
from postroom.config.settings import Setting
from postroom.model.imap import ImapAccount, ImapSettings, ImapTimeouts

PREFIX = "MAIL_IMAP_"
_MS = whole_number(1, 3_600_000)
_ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def _row(name: str, reader: Reader[Any], summary: str, default: str = "") -> Setting:
    return Setting(name, reader, summary, default, is_secret=name == "pass", prefix=PREFIX)


FOR_ALL: tuple[Setting, ...] = (
    _row("write_enabled", readers.TRUTH, "Allow tools to change live mail.", "false"),
    _row("connect_timeout_ms", _MS, "Timeout for connecting.", "30000"),
    _row("greeting_timeout_ms", _MS, "Timeout for the greeting.", "15000"),
    _row("socket_timeout_ms", _MS, "Timeout for a response.", "300000"),
)
FOR_ONE: tuple[Setting, ...] = (
    _row("host", readers.HOST, "The IMAP server."),
    _row("port", whole_number(1, 65_535), "The port of the IMAP server.", "993"),
    _row("secure", readers.TRUTH, "Use TLS from the start.", "true"),
    _row("user", readers.TEXT, "The user name."),
    _row("pass", readers.TEXT, "The password, or the token of xoauth2."),
    _row("ca_file", readers.FILE, "Trust this certificate instead of the system's."),
    _row("auth", readers.IMAP_AUTH, "The authentication method.", "login"),
    _row("starttls", readers.TRUTH, "Use STARTTLS.", "false"),
    _row("insecure", readers.TRUTH, "On loopback only: do not require verified TLS.", "false"),
)
_REQUIRED = ("host", "user", "pass")
Problems = list[tuple[str, str]]


class _Reader:
    """Groups variables by account and reads them; errors are collected in `problems`."""

    def __init__(self, environ: Mapping[str, str], folder: Path, problems: Problems) -> None:
        self.environ, self.folder, self.problems = environ, folder, problems
        self.read_values: list[tuple[Setting, Any]] = []
        self.for_all: dict[str, Any] = {}
        self.accounts: dict[str, dict[str, Any]] = {}

    def read(self) -> ImapSettings:
        for variable, raw in sorted(self.environ.items()):
            if variable.startswith(PREFIX) and raw:
                self._read_variable(variable, raw)
        accounts = [self._account(name, values) for name, values in self.accounts.items()]
        return ImapSettings(
            tuple(account for account in accounts if account is not None),
            bool(self.for_all.get("write_enabled")),
            ImapTimeouts(
                self._seconds("connect_timeout_ms"),
                self._seconds("greeting_timeout_ms"),
                self._seconds("socket_timeout_ms"),
            ),
        )

    def _seconds(self, name: str) -> float:
        default = next(int(row.default) for row in FOR_ALL if row.name == name)
        return (self.for_all.get(name) or default) / 1000

    def _read_variable(self, variable: str, raw: str) -> None:
        name = variable.removeprefix(PREFIX)
        common = next((row for row in FOR_ALL if row.name == name.lower()), None)
        if common is not None:
            self._keep(self.for_all, common, variable, raw)
            return
        row = next((r for r in FOR_ONE if name.upper().endswith("_" + r.name.upper())), None)
        account = name[: -len(row.name) - 1] if row is not None else ""
        if row is None or not _ACCOUNT.fullmatch(account):
            self.problems.append((variable, _unknown(name)))
            return
        values = self.accounts.setdefault(account.lower(), {})
        if row.name in values:
            self.problems.append((variable, "is set twice, in other letters"))
            return
        self._keep(values, row, variable, raw)

    def _keep(self, into: dict[str, Any], row: Setting, variable: str, raw: str) -> None:
        into[row.name] = None
        try:
            value = row.reader.read(raw)
        except ValueError as error:
            self.problems.append((variable, str(error)))
            return
        into[row.name] = self.folder / value if isinstance(value, Path) else value
        named = replace(row, name=variable.removeprefix(PREFIX))
        self.read_values.append((named, into[row.name]))

    def _account(self, name: str, values: dict[str, Any]) -> ImapAccount | None:
        missing = [row for row in _REQUIRED if row not in values]
        for row in missing:
            self._complain(name, row, "is required for this account")
        if missing or any(value is None for value in values.values()):
            return None
        is_insecure = values.get("insecure", False)
        if is_insecure and not _is_loopback(values["host"]):
            self._complain(name, "insecure", "works only with a host on loopback")
        if values.get("ca_file") is not None and not values["ca_file"].is_file():
            self._complain(name, "ca_file", "there is no such file")
        security: Literal["tls", "starttls", "none"]
        security = "tls" if values.get("secure", True) else "none"
        if values.get("starttls", False):
            security = "starttls"
        if security == "none" and not is_insecure:
            self._complain(
                name,
                "secure",
                "mail and password would travel in the clear; set _STARTTLS=true, or on loopback "
                "_INSECURE=true",
            )
        return ImapAccount(
            name,
            values["host"],
            values["user"],
            values["pass"],
            values.get("port", 993),
            security,
            values.get("auth", "login"),
            values.get("ca_file"),
            is_unverified=is_insecure and values.get("ca_file") is None,
        )

    def _complain(self, account: str, row: str, problem: str) -> None:
        self.problems.append((f"{PREFIX}{account.upper()}_{row.upper()}", problem))


def read_imap(
    environ: Mapping[str, str], folder: Path, problems: Problems
) -> tuple[ImapSettings, list[tuple[Setting, Any]]]:
    """The live accounts and each value that is set; what is wrong goes into *problems*."""
    reader = _Reader(environ, folder, problems)
    return reader.read(), reader.read_values


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _unknown(name: str) -> str:
    """Suggest the variable that was meant."""
    import difflib

    known = [row.name.upper() for row in FOR_ALL]
    account = name.rpartition("_")[0]
    if account:
        known += [f"{account}_{row.name.upper()}" for row in FOR_ONE]
    close = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.75)
    if close:
        return f"unknown setting; did you mean {PREFIX}{close[0]}?"
    endings = ", ".join(row.name.upper() for row in FOR_ONE)
    return f"unknown setting; after the name of an account comes one of {endings}"
