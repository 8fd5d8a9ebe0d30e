"""`doctor` says what is wrong with an installation and how to fix it."""

from __future__ import annotations

import asyncio
import os
import socket
from base64 import b64encode
from pathlib import Path

import apsw
import psycopg
import pytest

from postroom import __version__
from postroom.model.account import Identity
from postroom.model.event import AuditRecord
from postroom.store.postgres import connection, engine
from postroom.surfaces.cli.commands import doctor
from postroom.surfaces.cli.session import Session
from tests.servers import s3
from tests.servers.ports import free_port
from tests.servers.postroom import running
from tests.servers.relay import relaying
from tests.surfaces.cli.conftest import run_sql


def checks(result) -> dict[str, tuple[str, str]]:
    return {check["check"]: (check["status"], check["fix"]) for check in result.json["checks"]}


def test_doctor_finds_no_problems_in_a_healthy_installation(postroom, inbox, monkeypatch):
    monkeypatch.setenv("POSTROOM_PORT", "0")
    monkeypatch.setenv("POSTROOM_SMTP_LISTEN", f"127.0.0.1:{free_port()}")

    result = postroom("doctor", "-o", "json")

    names = (
        "python sqlite tools settings memory logins folder space port smtp relay database index "
        "blobs keys addresses rules webhooks outbox clock"
    )
    assert dict.fromkeys(names.split(), ("ok", "")) == checks(result)
    assert 0 == result.code


def test_doctor_names_rules_without_inboxes(postroom, data, inbox, monkeypatch):
    monkeypatch.setenv("POSTROOM_PORT", "0")
    text = "name: Lost\nwhen: [{subject: {contains: x}}]\nthen: [flag]\n"
    for _ in range(2):
        rule = postroom("rule", "create", text, "--no-dry-run", "-o", "json").json
    run_sql(data, f"UPDATE rules SET inboxes = '[]' WHERE id = '{rule['id']}'")

    result = postroom("doctor", "-o", "json")

    [found] = [check for check in result.json["checks"] if check["check"] == "rules"]
    assert "warning" == found["status"]
    assert f"these rules have no inbox and do not run: {rule['id']} (Lost) (" in found["detail"]
    assert "`postroom rule delete ID`" in found["fix"]


def test_doctor_names_idle_rules_missing_rights_and_dropped_jobs(
    postroom, data, inbox, monkeypatch
):
    monkeypatch.setenv("POSTROOM_PORT", "0")
    text = "name: Lost\nwhen: [{subject: {contains: x}}]\nthen: [flag]\n"
    idle, revoked, unknown = (
        postroom("rule", "create", text, "--no-dry-run", "-o", "json").json["id"] for _ in range(3)
    )
    run_sql(
        data, "INSERT INTO upgrade_losses (kind, subject, lost) VALUES ('rule_job', 'rul_x', 3)"
    )
    before = _rules_check(postroom)
    run_sql(data, f"UPDATE rules SET inboxes = '[]' WHERE id = '{idle}'")
    run_sql(data, f"UPDATE rules SET authority = 'key_gone' WHERE id = '{revoked}'")
    run_sql(data, f"UPDATE rules SET authority = NULL WHERE id = '{unknown}'")

    found = _rules_check(postroom)

    assert ("ok", "warning") == (before["status"], found["status"])
    for check in (before, found):
        assert "3 forwards or replies of rul_x" in check["detail"]
    assert f"do not run: {idle} (Lost) (" in found["detail"]
    assert f"{revoked} (Lost): the key of the rule was revoked" in found["detail"]
    assert f"{unknown} (Lost): its key is not recorded" in found["detail"]
    assert "`postroom rule delete ID`" in found["fix"]
    assert f"`postroom rule update {revoked} --enabled`" in found["fix"]


def _rules_check(postroom):
    checks = postroom("doctor", "-o", "json").json["checks"]
    return next(check for check in checks if check["check"] == "rules")


def test_doctor_says_why_mail_is_queued(postroom, inbox, monkeypatch):
    port = free_port()
    monkeypatch.setenv("POSTROOM_RELAY_URL", f"smtp://127.0.0.1:{port}")
    outgoing_mail = (
        "--to",
        "bo@elsewhere.example",
        "--subject",
        "Hello",
        "--body-text",
        "Hello Bo",
    )
    assert 0 == postroom("send", "--wait-s", "2", *outgoing_mail).code

    result = postroom("doctor", "-o", "json")

    waiting = next(check for check in result.json["checks"] if check["check"] == "outbox")
    assert "warning" == waiting["status"]
    assert "1 mail is waiting: " in waiting["detail"]


def questionable(postroom) -> dict[str, str]:
    result = postroom("doctor", "-o", "json")
    assert 0 == result.code
    return next(check for check in result.json["checks"] if check["check"] == "addresses")


def test_doctor_names_foreign_addresses_and_how_to_remove_them(postroom, inbox, data, monkeypatch):
    monkeypatch.setenv("POSTROOM_PORT", "0")
    for name in ("support", "eve"):
        postroom("inbox", "create", "--username", name)
    eves = postroom("inbox", "list", "-o", "json").json["results"][-1]["id"]
    before = questionable(postroom)
    for email in ("bo+x", "postmaster"):
        made_before_the_upgrade(data, eves, f"{email}@postroom.localhost")

    found = questionable(postroom)
    for row in postroom("identity", "list", eves, "-o", "json").json["results"][1:]:
        assert 0 == postroom("identity", "delete", row["id"]).code

    assert ("ok", True) == (before["status"], "support@postroom.localhost" in before["detail"])
    assert "warning" == found["status"]
    assert "bo+x@postroom.localhost" in found["detail"]
    assert "created by key_1) is a plus-address of another inbox's bo@" in found["detail"]
    assert "postmaster@postroom.localhost" in found["detail"]
    assert "support@" not in found["detail"]
    assert "postroom identity delete" in found["fix"]
    assert before == questionable(postroom)


def made_before_the_upgrade(data: Path, inbox_id: str, email: str) -> None:
    """An alias that an earlier version let a limited key create."""

    async def make(app):
        identity = Identity(app.services.new_id("idn"), email, "", "", inbox_id, None, False)
        store = app.services.store.by(AuditRecord("key_1", "create_alias", app.services.clock()))
        await store.add_identity(identity)

    Session(data=str(data)).run(make)


def test_doctor_creates_no_folder(postroom, data, monkeypatch):
    monkeypatch.setenv("POSTROOM_PORT", "0")

    result = postroom("doctor")

    assert 0 == result.code
    assert f"there is no store in {data} yet" in result.out
    assert not data.exists()


def test_doctor_names_invalid_settings_and_checks_the_rest(postroom, monkeypatch):
    monkeypatch.setenv("POSTROOM_PROT", "1")

    result = postroom("doctor")

    assert 1 == result.code
    assert "did you mean POSTROOM_PORT?" in result.out
    assert "ok       sqlite" in result.out


def test_doctor_reports_a_folder_that_others_can_read(postroom, inbox, data, monkeypatch):
    monkeypatch.setenv("POSTROOM_PORT", "0")
    data.chmod(0o755)

    result = postroom("doctor", "-o", "json")

    assert ("warning", f"chmod 700 {data}") == checks(result)["folder"]
    assert 0 == result.code


def test_doctor_names_the_process_on_the_port(postroom, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setenv("POSTROOM_PORT", str(other.getsockname()[1]))
        result = postroom("doctor", "-o", "json")

    status, fix = checks(result)["port"]
    assert (1, "problem") == (result.code, status)
    assert "--port" in fix
    assert f"(process {os.getpid()})" in detail_of(result, "port")


def detail_of(result, name):
    [found] = [c["detail"] for c in result.json["checks"] if c["check"] == name]
    return found


def test_doctor_recognises_our_own_server(postroom, data, monkeypatch):
    with running(data) as server:
        monkeypatch.setenv("POSTROOM_PORT", server.url.rpartition(":")[2])
        result = postroom("doctor", "-o", "json")

    assert ("ok", "") == checks(result)["port"]
    assert f"Postroom {__version__} is listening" in detail_of(result, "port")
    assert detail_of(result, "port").endswith("with this data")


def test_doctor_recognises_our_own_server_that_waits_for_the_database(postroom, data, monkeypatch):
    with running(data) as server:
        monkeypatch.setenv("POSTROOM_PORT", server.url.rpartition(":")[2])
        responses = iter([(None, {}), (200, {"status": "ok"})])

        async def ask(_settings, _path):
            return next(responses)

        monkeypatch.setattr(doctor, "_ask", ask)
        result = postroom("doctor", "-o", "json")

    assert ("problem", True) == (
        checks(result)["port"][0],
        "is not ready" in detail_of(result, "port"),
    )
    assert "stop it" not in checks(result)["port"][1]


def test_doctor_reports_a_server_with_other_data(postroom, inbox, tmp_path, monkeypatch):
    with running(tmp_path / "other") as server:
        monkeypatch.setenv("POSTROOM_PORT", server.url.rpartition(":")[2])
        result = postroom("doctor", "-o", "json")

    status, fix = checks(result)["port"]
    assert ("warning", True) == (status, "--data" in fix)
    assert "with different data than this folder" in detail_of(result, "port")


def test_doctor_says_which_process_receives_mail(postroom, inbox, data, monkeypatch):
    port = free_port()
    monkeypatch.setenv("POSTROOM_SMTP_LISTEN", f"127.0.0.1:{port}")
    before = postroom("doctor", "-o", "json")
    with running(data, POSTROOM_SMTP_LISTEN=f"127.0.0.1:{port}"):
        during = postroom("doctor", "-o", "json")
    with socket.create_server(("127.0.0.1", port)):
        other = postroom("doctor", "-o", "json")

    assert "is free" in detail_of(before, "smtp")
    assert f"Postroom receives mail on 127.0.0.1:{port}" == detail_of(during, "smtp")
    assert f"(process {os.getpid()})" in detail_of(other, "smtp")


async def test_doctor_tests_the_relay_without_sending(forked, inbox):
    def login(line):
        known = b64encode(b"\0ana\0right").decode()
        return b"235 ok" if line == f"AUTH PLAIN {known}" else b"535 no"

    async def examined(url):
        words = ("doctor", "-o", "json")
        return await asyncio.to_thread(forked, *words, POSTROOM_RELAY_URL=url, POSTROOM_PORT="0")

    script = {"EHLO": b"250-x\r\n250-SIZE 10485760\r\n250 AUTH PLAIN", "AUTH": login}
    async with relaying(script) as relay:
        urls = [
            f"smtp://ana:{word}@127.0.0.1:{relay.port}?insecure=true"
            for word in ("right", "wrong-canary")
        ]
        results = [await examined(url) for url in (*urls, f"smtp://127.0.0.1:{free_port()}")]

    assert ["ok", "problem", "problem"] == [checks(result)["relay"][0] for result in results]
    assert "the login is accepted; mails up to 10 MB" in detail_of(results[0], "relay")
    assert "535" in detail_of(results[1], "relay")
    assert "no connection to the relay" in detail_of(results[2], "relay")
    assert all("canary" not in result.out + result.err for result in results)
    assert [] == relay.mails


def test_doctor_reports_an_invalid_database(postroom, data, monkeypatch):
    monkeypatch.setenv("POSTROOM_PORT", "0")
    data.mkdir(mode=0o700)
    (data / "postroom.db").write_bytes(b"not a database" * 1000)

    result = postroom("doctor", "-o", "json")

    assert 1 == result.code
    assert "problem" == checks(result)["database"][0]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_doctor_reports_a_newer_database(postroom, data, monkeypatch, request, kind):
    monkeypatch.setenv("POSTROOM_PORT", "0")
    data.mkdir(mode=0o700)
    if kind == "postgres":
        url = request.getfixturevalue("database_url")
        monkeypatch.setenv("POSTROOM_DATABASE_URL", url)
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE schema_version SET version = 1000")
    else:
        with apsw.Connection(str(data / "postroom.db")) as connection:
            connection.pragma("user_version", 1000)

    result = postroom("doctor", "-o", "json")

    (found,) = [check for check in result.json["checks"] if check["check"] == "database"]
    assert "schema 1000" in found["detail"]
    assert found["fix"].startswith("install the version that created it, or a newer one")


def test_doctor_reports_a_missing_bucket_in_one_line(postroom, inbox, monkeypatch):
    monkeypatch.setenv("POSTROOM_PORT", "0")
    monkeypatch.setenv("POSTROOM_BLOBS_URL", "s3://nobody-made-this/x")
    with s3.running() as bucket:
        for name, value in s3.environment(bucket).items():
            monkeypatch.setenv(name, value)
        result = postroom("doctor", "-o", "json")

    (found,) = [check for check in result.json["checks"] if check["check"] == "blobs"]
    assert (1, "problem") == (result.code, found["status"])
    assert "the bucket does not exist" in found["detail"]
    assert "\n" not in found["detail"]
    assert "s3://nobody-made-this/x" in found["fix"]


def test_doctor_reports_a_database_that_does_not_respond(postroom, data, monkeypatch):
    data.mkdir(mode=0o700)
    monkeypatch.setenv("POSTROOM_PORT", "0")
    monkeypatch.setenv("POSTROOM_DATABASE_URL", "postgresql://me@127.0.0.1:9/postroom")
    monkeypatch.setattr(engine, "RETRY_S", 0.0)

    result = postroom("doctor", "-o", "json")

    status, fix = checks(result)["database"]
    assert ("problem", True) == (status, fix.startswith("check POSTROOM_DATABASE_URL"))
    assert "server runs" in fix


def test_the_doctor_says_where_to_look_when_writes_wait(postroom, data, database_url, monkeypatch):
    """As they do while the only synchronous standby is away."""
    monkeypatch.setenv("POSTROOM_PORT", "0")
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    assert 0 == postroom("inbox", "create", "--username", "bo").code
    short = "SET lock_timeout = '100ms'"
    monkeypatch.setattr(connection, "_SESSION", short)
    with psycopg.connect(database_url) as holder:
        holder.execute(engine.LOCK.split("; ")[1])
        result = postroom("doctor", "-o", "json")

    status, fix = checks(result)["database"]
    assert ("problem", True) == (status, "SyncRep" in fix)


def test_doctor_reports_a_paused_outbox(postroom, inbox, monkeypatch):
    monkeypatch.setenv("POSTROOM_PORT", "0")
    before = checks(postroom("doctor", "-o", "json"))["outbox"]
    postroom("outbox", "pause")
    after = checks(postroom("doctor", "-o", "json"))["outbox"]

    assert ("ok", "warning") == (before[0], after[0])
    assert "postroom outbox resume" in after[1]


def test_doctor_reports_a_clock_that_went_back(postroom, inbox, data, monkeypatch):
    monkeypatch.setenv("POSTROOM_PORT", "0")
    os.utime(data / "postroom.db", (4_000_000_000, 4_000_000_000))

    result = postroom("doctor", "-o", "json")

    assert ("problem", "set the clock of this machine") == checks(result)["clock"]
