"""Reads and checks settings and live IMAP accounts, and records the origin of each value.

The accounts are in the variables of contract 002: MAIL_IMAP_<ACCOUNT>_HOST and so on. The name of
an account is the part in the middle, in lower case.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from postroom.config import readers
from postroom.config.readers import Reader, whole_number
from postroom.config.settings import PREFIX, SETTINGS, Setting, Settings, format_value
from postroom.errors import InvalidInput
from postroom.model.imap import ImapAccount, ImapSettings, ImapTimeouts
from postroom.model.limits import Limits
from postroom.model.values import dataclass

FILE_VARIABLE = PREFIX + "CONFIG"
FILE_NAME = "postroom.toml"
DEFAULT = "default"
ENVIRONMENT = "environment"
MASK = "********"
_BY_NAME = {setting.name: setting for setting in SETTINGS}


class ConfigError(InvalidInput):
    """Settings are wrong; `problems` in the details names each one."""


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a setting and its origin."""

    setting: Setting
    value: Any
    origin: str

    @property
    def masked_value(self) -> str:
        """The value for display; secrets are hidden."""
        if self.setting.is_secret and self.value:
            return MASK
        return format_value(self.value) or self.setting.default


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings, and each value with its origin."""

    settings: Settings
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A raw value: its name, its origin, and the folder that relative paths refer to."""

    written: str
    name: str
    raw: object
    origin: str
    folder: Path


def load(given: Mapping[str, object] | None = None) -> Configuration:
    """Read the settings of this process; *given* comes from the command line and wins."""
    return read_settings(os.environ, given)


def read_settings(
    environ: Mapping[str, str],
    given: Mapping[str, object] | None = None,
    folder: Path | None = None,
) -> Configuration:
    """Build the settings from raw values.

    Raises:
        ConfigError: with one problem for each name or value that is wrong.
    """
    folder = folder or Path.cwd()
    problems: list[tuple[str, str]] = []
    entries = [
        *_from_file(environ, folder, problems),
        *_from_environment(environ, folder),
        *_from_command_line(given or {}, folder),
    ]
    values = _read(entries, problems)
    imap_reader = _ImapReader(environ, folder, problems)
    imap = imap_reader.read()
    if problems:
        raise ConfigError.of(*problems)
    found = _configuration(values, imap, tuple(imap_reader.values))
    if problems := [*_key_in_data_folder(found.settings), *_own_cell_relays(found.settings)]:
        raise ConfigError.of(*problems)
    return found


def _key_in_data_folder(settings: Settings) -> Iterator[tuple[str, str]]:
    """A key in the data folder is in every copy of it, by whatever way its path goes there."""
    key, folder = settings.vault_key_file, settings.data_dir
    if key is None:
        return
    # The file may itself be a link to elsewhere: to replace it would put the key in the folder.
    ways = (key, key.parent.resolve() / key.name, key.resolve())
    if any(way.is_relative_to(kept) for way in ways for kept in (folder, folder.resolve())):
        problem = f"{key} is in the data folder; name a file outside of {folder}"
        yield _BY_NAME["vault_key_file"].variable, problem


def _own_cell_relays(settings: Settings) -> Iterator[tuple[str, str]]:
    """A domain is served here or by another cell."""
    for domain, _ in settings.cell_relays:
        if domain in settings.domains:
            problem = f"{domain} is one of POSTROOM_DOMAIN; list only domains of other cells"
            yield _BY_NAME["cell_relays"].variable, problem


def _from_file(
    environ: Mapping[str, str], folder: Path, problems: list[tuple[str, str]]
) -> Iterator[_Entry]:
    named = environ.get(FILE_VARIABLE)
    path = folder / Path(named or FILE_NAME).expanduser()
    if not named and not path.is_file():
        return
    try:
        tables = _tables(path)
    except (OSError, ValueError, RecursionError) as error:
        problems.append((FILE_VARIABLE if named else FILE_NAME, f"cannot be read: {error}"))
        return
    for written, raw in tables:
        name = written.replace("limits.", "limit_", 1)
        yield _Entry(written, name, raw, str(path), path.parent)


def _tables(path: Path) -> list[tuple[str, object]]:
    """Every key of the file, those of a table with its name in front."""
    import tomllib

    rows: list[tuple[str, object]] = []
    for key, value in tomllib.loads(path.read_text("utf-8")).items():
        if isinstance(value, dict):
            rows += [(f"{key}.{inner}", item) for inner, item in value.items()]
        else:
            rows.append((key, value))
    return rows


def _from_environment(environ: Mapping[str, str], folder: Path) -> Iterator[_Entry]:
    """An empty variable counts as not set, unless that would grant more rights."""
    for variable, raw in sorted(environ.items()):
        if not variable.startswith(PREFIX) or variable == FILE_VARIABLE:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if raw or (name in _BY_NAME and not _BY_NAME[name].may_be_empty):
            yield _Entry(variable, name, raw, ENVIRONMENT, folder)


def _from_command_line(given: Mapping[str, object], folder: Path) -> Iterator[_Entry]:
    for name, raw in given.items():
        option = _BY_NAME[name].option or "--" + name.replace("_", "-")
        yield _Entry(option, name, raw, option, folder)


def _read(entries: Iterable[_Entry], problems: list[tuple[str, str]]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for entry in entries:
        setting = _BY_NAME.get(entry.name)
        if setting is None:
            problems.append((entry.written, _unknown(entry)))
            continue
        try:
            value = setting.reader.read(entry.raw)
        except ValueError as error:
            problems.append((entry.written, str(error)))
            continue
        if isinstance(value, Path):
            value = entry.folder / value
        values[setting.name] = Value(setting, value, entry.origin)
    return values


def _unknown(entry: _Entry) -> str:
    """Suggest a known name that is similar."""
    import difflib

    close = difflib.get_close_matches(entry.name, _BY_NAME, n=1, cutoff=0.75)
    if not close:
        return "unknown setting; `postroom config --help` lists all settings"
    known = re.sub("^limit_", "limits.", close[0])  # in the file, limits are in a separate table
    if entry.written.startswith(PREFIX):
        known = _BY_NAME[close[0]].variable
    return f"unknown setting; did you mean {known}?"


def _configuration(
    read: Mapping[str, Value], imap: ImapSettings, live: tuple[Value, ...]
) -> Configuration:
    placed = {v.setting.settings_field: v.value for v in read.values()}
    if "data_dir" not in placed:
        from platformdirs import user_data_path

        placed["data_dir"] = user_data_path("postroom", appauthor=False)
    limits = {name[7:]: value for name, value in placed.items() if name.startswith("limits.")}
    plain = {name: value for name, value in placed.items() if not name.startswith("limits.")}
    settings = Settings(**plain, limits=Limits(**limits), imap=imap)
    values = (_value_of(setting, settings, read) for setting in SETTINGS)
    return Configuration(settings, (*values, *live))


def _value_of(setting: Setting, settings: Settings, read: Mapping[str, Value]) -> Value:
    if setting.name in read:
        return read[setting.name]
    holder: object = settings
    for step in setting.settings_field.split("."):
        holder = getattr(holder, step)
    return Value(setting, holder, DEFAULT)


def preference(*names: str) -> str | None:
    """The first of these variables that is set."""
    return next((os.environ[name] for name in names if name in os.environ), None)


def environment_with(**defaults: str) -> dict[str, str]:
    """The environment for a program of the terminal, with defaults for what is not set."""
    return {**defaults, **os.environ}


IMAP_PREFIX = "MAIL_IMAP_"
_MS = whole_number(1, 3_600_000)
_ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def _of_imap(name: str, reader: Reader[Any], summary: str, default: str = "") -> Setting:
    return Setting(name, reader, summary, default, is_secret=name == "pass", prefix=IMAP_PREFIX)


FOR_ALL: tuple[Setting, ...] = (
    _of_imap("write_enabled", readers.BOOLEAN, "Allow tools to change live mail.", "false"),
    _of_imap("connect_timeout_ms", _MS, "Timeout for connecting.", "30000"),
    _of_imap("greeting_timeout_ms", _MS, "Timeout for the greeting.", "15000"),
    _of_imap("socket_timeout_ms", _MS, "Timeout for a response.", "300000"),
)
FOR_ONE: tuple[Setting, ...] = (
    _of_imap("host", readers.HOST, "The IMAP server."),
    _of_imap("port", whole_number(1, 65_535), "The port of the IMAP server.", "993"),
    _of_imap("secure", readers.BOOLEAN, "Use TLS from the start.", "true"),
    _of_imap("user", readers.TEXT, "The user name."),
    _of_imap("pass", readers.TEXT, "The password, or the token of xoauth2."),
    _of_imap("ca_file", readers.FILE, "Trust this certificate instead of the system's."),
    _of_imap("auth", readers.IMAP_AUTH, "The authentication method.", "login"),
    _of_imap("starttls", readers.BOOLEAN, "Use STARTTLS.", "false"),
    _of_imap(
        "insecure", readers.BOOLEAN, "On loopback only: do not require verified TLS.", "false"
    ),
)
_REQUIRED = ("host", "user", "pass")
Problems = list[tuple[str, str]]


class _ImapReader:
    """Groups variables by account and reads them; `values` are those that are set."""

    def __init__(self, environ: Mapping[str, str], folder: Path, problems: Problems) -> None:
        self.environ, self.folder, self.problems = environ, folder, problems
        self.values: list[Value] = []
        self.for_all: dict[str, Any] = {}
        self.accounts: dict[str, dict[str, Any]] = {}

    def read(self) -> ImapSettings:
        for variable, raw in sorted(self.environ.items()):
            if variable.startswith(IMAP_PREFIX) and raw:
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
        name = variable.removeprefix(IMAP_PREFIX)
        common = next((row for row in FOR_ALL if row.name == name.lower()), None)
        if common is not None:
            self._keep(self.for_all, common, variable, raw)
            return
        row = next((r for r in FOR_ONE if name.upper().endswith("_" + r.name.upper())), None)
        account = name[: -len(row.name) - 1] if row is not None else ""
        if row is None or not _ACCOUNT.fullmatch(account):
            self.problems.append((variable, _unknown_imap_setting(name)))
            return
        values = self.accounts.setdefault(account.lower(), {})
        if row.name in values:
            self.problems.append((variable, "is set twice, in upper and lower case"))
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
        named = replace(row, name=variable.removeprefix(IMAP_PREFIX))
        self.values.append(Value(named, into[row.name], ENVIRONMENT))

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
                "mail and password would be sent unencrypted; set _STARTTLS=true, or on loopback "
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
        self.problems.append((f"{IMAP_PREFIX}{account.upper()}_{row.upper()}", problem))


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _unknown_imap_setting(name: str) -> str:
    """Suggest the variable that was meant."""
    import difflib

    known = [row.name.upper() for row in FOR_ALL]
    account = name.rpartition("_")[0]
    if account:
        known += [f"{account}_{row.name.upper()}" for row in FOR_ONE]
    close = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.75)
    if close:
        return f"unknown setting; did you mean {IMAP_PREFIX}{close[0]}?"
    endings = ", ".join(row.name.upper() for row in FOR_ONE)
    return f"unknown setting; the name of an account is followed by one of {endings}"
