"""Settings come from four sources, and all errors are reported at once."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from postroom.config import SETTINGS, ConfigError, Settings, read_settings
from postroom.model.limits import Limits

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def problems(error: pytest.ExceptionInfo[ConfigError]) -> dict[str, str]:
    return {p["field"]: p["problem"] for p in error.value.details["problems"]}


def origins(configuration) -> dict[str, str]:
    return {value.setting.name: value.origin for value in configuration.values}


def test_the_defaults_are_used_without_settings(tmp_path):
    settings = read_settings({}, folder=tmp_path).settings

    assert ("127.0.0.1", 8700, ("postroom.localhost",)) == (
        settings.host,
        settings.port,
        settings.domains,
    )
    assert Limits() == settings.limits
    assert settings.data_dir.is_absolute()


def test_the_command_line_overrides_the_environment_and_that_the_file(tmp_path):
    (tmp_path / "postroom.toml").write_text('port = 1\nhost = "10.0.0.1"\nread_only = true\n')
    environ = {"POSTROOM_PORT": "2", "POSTROOM_HOST": "10.0.0.2"}

    configuration = read_settings(environ, {"port": 3}, tmp_path)

    settings = configuration.settings
    assert (3, "10.0.0.2", True) == (settings.port, settings.host, settings.read_only)
    assert ["--port", "environment", str(tmp_path / "postroom.toml"), "default"] == [
        origins(configuration)[name] for name in ("port", "host", "read_only", "domain")
    ]


def test_another_settings_file_can_be_named(tmp_path):
    file = tmp_path / "deep" / "mail.toml"
    file.parent.mkdir()
    file.write_text('domain = ["A.example", "b.example"]\n[limits]\nrecipients = 7\n')

    settings = read_settings({"POSTROOM_CONFIG": str(file)}, folder=tmp_path).settings

    assert (("a.example", "b.example"), 7) == (settings.domains, settings.limits.recipients)


def test_a_path_in_the_file_is_relative_to_the_file(tmp_path):
    file = tmp_path / "deep" / "postroom.toml"
    file.parent.mkdir()
    file.write_text('data_dir = "mail"\n')

    settings = read_settings({"POSTROOM_CONFIG": str(file)}, folder=tmp_path).settings

    assert tmp_path / "deep" / "mail" == settings.data_dir


def test_every_problem_is_reported_at_once_by_its_name(tmp_path):
    (tmp_path / "postroom.toml").write_text('domian = "x"\n[limits]\nmessage_byte = 3\n')
    environ = {
        "POSTROOM_PORT": "99999",
        "POSTROOM_READ_ONLY": "perhaps",
        "POSTROOM_TOOLSET": "inbox",
        "POSTROOM_LIMIT_RECIPIENTS": "0",
        "POSTROOM_WEATHER": "fair",
    }

    with pytest.raises(ConfigError) as error:
        read_settings(environ, folder=tmp_path)

    assert {
        "domian": "unknown setting; did you mean domain?",
        "limits.message_byte": "unknown setting; did you mean limits.message_bytes?",
        "POSTROOM_PORT": "must be a whole number from 0 to 65535",
        "POSTROOM_READ_ONLY": "must be true or false",
        "POSTROOM_TOOLSET": "unknown setting; did you mean POSTROOM_TOOLSETS?",
        "POSTROOM_LIMIT_RECIPIENTS": "must be a whole number from 1 to 5000",
        "POSTROOM_WEATHER": "unknown setting; `postroom config --help` lists all settings",
    } == problems(error)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "-1"),
        ("PORT", "eighty"),
        ("PORT", "1e3"),
        ("HOST", "a b"),
        ("DOMAIN", "exa mple.com"),
        ("DOMAIN", "a.example,,b.example"),
        ("DOMAIN", "user@example.com"),
        ("API_KEY", "short"),
        ("API_KEY", "x" * 8),
        ("API_KEY", "x" * 19),
        ("API_KEY", "x" * 257),
        ("KEY", ""),
        ("KEY", " "),
        ("RESEND_SIGNING_SECRET", "not!base64!secret"),
        ("RESEND_SIGNING_SECRET", "whsec_"),
        ("RESEND_SIGNING_SECRET", "whsec_c2hvcnQ="),
        ("SENDGRID_PUBLIC_KEY", "not!base64!key"),
        ("SENDGRID_PUBLIC_KEY", "bm90IGEga2V5IGF0IGFsbA=="),
        ("SENDGRID_PUBLIC_KEY", "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="),
        ("API_KEY", "with a space"),
        ("PUBLIC_URL", "mail.example.com"),
        ("PUBLIC_URL", "javascript:alert(1)"),
        ("TOOLSETS", "in-box"),
        ("LIMIT_MIME_DEPTH", "101"),
        ("DATA_DIR", "a\nb"),
    ],
)
def test_an_invalid_value_is_refused(tmp_path, name, value):
    with pytest.raises(ConfigError) as error:
        read_settings({f"POSTROOM_{name}": value}, folder=tmp_path)

    assert [f"POSTROOM_{name}"] == list(problems(error))


@pytest.mark.parametrize(
    "password", ["pa%ssSECRET", "SECRET%00", "pa@SECRET", "1/SECRET", "a/SECRET"]
)
def test_a_password_that_breaks_the_address_of_the_database_is_not_shown(tmp_path, password):
    url = f"postgresql://postroom:{password}@db.internal:5432/postroom"

    with pytest.raises(ConfigError) as error:
        read_settings({"POSTROOM_DATABASE_URL": url}, folder=tmp_path)

    [problem] = problems(error).values()
    assert "%40" in problem
    assert "SECRET" not in problem


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://postroom:pa%25ss%40%2F?#@db.internal:5432/postroom",
        "postgresql://u:p@one:5432,two:5433/mail?target_session_attrs=read-write",
        "postgres:///mail?host=/var/run/postgresql&sslrootcert=/etc/ssl/a@b.pem",
        "postgresql://u@[::1]:5432/mail",
    ],
)
def test_the_addresses_of_databases_that_libpq_takes(tmp_path, url):
    assert (
        url == read_settings({"POSTROOM_DATABASE_URL": url}, folder=tmp_path).settings.database_url
    )


@pytest.mark.parametrize("content", ["port = ", "port = [1]", "port = true", "\xff"])
def test_an_unusable_settings_file_is_an_error(tmp_path, content):
    (tmp_path / "postroom.toml").write_bytes(content.encode("latin-1"))

    with pytest.raises(ConfigError):
        read_settings({}, folder=tmp_path)


def test_a_file_that_is_named_must_exist(tmp_path):
    with pytest.raises(ConfigError) as error:
        read_settings({"POSTROOM_CONFIG": str(tmp_path / "none.toml")}, folder=tmp_path)

    assert ["POSTROOM_CONFIG"] == list(problems(error))


def test_an_empty_variable_counts_as_not_set(tmp_path):
    configuration = read_settings({"POSTROOM_PORT": ""}, folder=tmp_path)

    assert "default" == origins(configuration)["port"]


def test_no_secret_is_shown(tmp_path):
    secret = "canary-0123456789-of-the-owner"

    configuration = read_settings({"POSTROOM_API_KEY": secret}, folder=tmp_path)

    [shown] = [v.masked_value for v in configuration.values if v.setting.name == "api_key"]
    assert secret == configuration.settings.api_key
    assert secret not in repr(configuration.settings) + shown


def test_a_bad_secret_is_not_repeated_in_the_error(tmp_path):
    with pytest.raises(ConfigError) as error:
        read_settings({"POSTROOM_API_KEY": "canary 0123456789 of the owner"}, folder=tmp_path)

    assert "canary" not in str(error.value)


def test_every_limit_is_a_setting():
    places = {setting.settings_field or setting.name for setting in SETTINGS}

    assert {f"limits.{f.name}" for f in fields(Limits)} <= places
    assert {f.name for f in fields(Settings)} - {"limits", "imap"} <= places


def test_the_documentation_lists_exactly_the_settings():
    row = re.compile(r"\| `(POSTROOM_\w+)` \| `([\w.]+)` \| (.+?) \| (.+?) \| (.+?) \|\n")

    documented = row.findall(DOCS.read_text())

    assert [
        (
            s.variable,
            re.sub("^limit_", "limits.", s.name),
            s.reader.accepts,
            s.default or "none",
            s.summary,
        )
        for s in SETTINGS
    ] == documented


@pytest.mark.parametrize("length", [20, 256])
def test_the_key_of_the_owner_is_long(tmp_path, length):
    key = "k" * length

    assert key == read_settings({"POSTROOM_API_KEY": key}, folder=tmp_path).settings.api_key


def test_a_short_key_is_refused_with_how_to_make_one(tmp_path):
    with pytest.raises(ConfigError) as error:
        read_settings({"POSTROOM_API_KEY": "12345678"}, folder=tmp_path)

    assert "20 to 256" in str(error.value)
    assert "openssl rand" in str(error.value)
    assert "unset it and run `postroom key reset`" in str(error.value)
    assert "12345678" not in str(error.value)


@pytest.mark.parametrize("way", ["inside", "deep", "itself", "link to the folder", "link inside"])
def test_the_key_of_logins_is_not_in_the_data_folder(tmp_path, way):
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    for folder in (data / "secrets", elsewhere):
        folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(data)
    (elsewhere / "key").symlink_to(data / "key")
    (data / "link").symlink_to(elsewhere / "other")
    paths = {
        "inside": data / "vault.key",
        "deep": elsewhere / ".." / "data" / "secrets" / "key",
        "itself": data,
        "link to the folder": tmp_path / "link" / "key",
        "link inside": data / "link",
    }
    for key in {paths[way], elsewhere / "key"}:
        given = {"POSTROOM_DATA_DIR": str(data), "POSTROOM_VAULT_KEY_FILE": str(key)}
        with pytest.raises(ConfigError, match=r"POSTROOM_VAULT_KEY_FILE: .*is in the data folder"):
            read_settings(given, folder=tmp_path)
    through_link = {"POSTROOM_DATA_DIR": str(tmp_path / "link")}
    with pytest.raises(ConfigError, match="is in the data folder"):
        read_settings({**through_link, "POSTROOM_VAULT_KEY_FILE": str(data / "k")}, folder=tmp_path)


@pytest.mark.parametrize("written", ["vault.key", "../vault.key", "./data/key"])
@pytest.mark.parametrize("is_in_file", [True, False])
def test_the_key_of_logins_is_named_by_an_absolute_path(tmp_path, written, is_in_file):
    given = {} if is_in_file else {"POSTROOM_VAULT_KEY_FILE": written}
    if is_in_file:
        (tmp_path / "postroom.toml").write_text(f'vault_key_file = "{written}"')

    with pytest.raises(ConfigError, match="must be an absolute path"):
        read_settings(given, folder=tmp_path)


def test_the_key_of_logins_may_be_anywhere_else(tmp_path):
    data, key = tmp_path / "data", tmp_path / "data.key"
    given = {"POSTROOM_DATA_DIR": str(data), "POSTROOM_VAULT_KEY_FILE": str(key)}

    assert key == read_settings(given, folder=tmp_path).settings.vault_key_file


def test_a_file_that_is_nested_too_deeply_is_refused(tmp_path):
    (tmp_path / "postroom.toml").write_text("domain = " + "[" * 10_000 + "]" * 10_000)

    with pytest.raises(ConfigError, match="cannot be read"):
        read_settings({}, folder=tmp_path)
