"""Commands with --url print the same as on the data folder, or say that they need it."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.surfaces.cli.command_table import COMMANDS, PlainCommand
from tests.mails import mail
from tests.servers.ports import free_port
from tests.servers.postroom import Running, running
from tests.surfaces.cli.pseudo_terminal import on_a_terminal

BO = "bo@postroom.localhost"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("remote") / "data"
    folder.mkdir(mode=0o700)
    with running(folder) as found:
        yield found


@pytest.fixture
def local(server: Running, postroom, monkeypatch):
    """Run a command on the data folder of the server."""
    monkeypatch.setenv("POSTROOM_DATA_DIR", str(server.data))
    return postroom


@pytest.fixture
def remote(server: Running, local):
    """Run a command with the URL of the server."""
    return lambda *words, **more: local("--url", server.url, "--key", server.key, *words, **more)


@pytest.fixture
def ids(local) -> dict[str, str]:
    """The ids of the objects at the server, by argument name."""
    local("inbox", "create", BO)
    files = [
        ("plan 你好.pdf", "application/pdf", b"%PDF-1.4"),
        ("a.html", "text/html", b"<p>A</p>"),
    ]
    text = "Good <b>morning</b> ![x](https://x.example/) <https://a.example/>\n" * 900
    raw = mail("Hello 瓦", text, attachments=files, sender="Ana <ana@example.com>")
    words = ("message", "receive", BO, "-", "-o", "json")
    message = local(*words, stdin=raw).json
    local("message", "label", "Work", message["message_id"])
    listed = local("attachment", "list", message["message_id"], "-o", "json").json["results"]
    draft = local("draft", "create", "--to", "x@y.example", "--subject", "D", "--text", "x",
                  "-o", "json").json  # fmt: skip
    return {
        "M": message["message_id"],
        "T": message["thread_id"],
        "PDF": listed[0]["id"],
        "HTML": listed[1]["id"],
        "D": draft["id"],
        "SHORT": message["message_id"][4:11],
    }


READS = [
    "inbox list",
    f"inbox show {BO}",
    f"message list {BO} --limit 2",
    f"message list {BO} --unread --flag seen --sort oldest",
    "message list",
    "message list --inbox-id inb_unknown",
    f"message list {BO} --limit 101",
    f"message list {BO} --cursor forged",
    "message show M",
    "message show SHORT",
    "message show M --include-headers --include-html --include-quoted",
    "message show M --max-chars 5",
    "message show msg_unknown",
    "message show thr_wrong",
    "message raw M",
    "message link M",
    "message wait bo@postroom.localhost --timeout-s 1",
    "message wait bo@postroom.localhost --since -100 --timeout-s 1 --from nobody@x.example",
    "search hello",
    "search --label Work --has-attachment --after-date 2026-01-01",
    "search two words",
    "search",
    "search --after-date yesterday",
    "thread list",
    "thread show T",
    "attachment list M",
    "attachment show PDF",
    "attachment content PDF",
    "attachment text HTML",
    "attachment save PDF --to -",
    "mailbox list",
    "label list",
    "memory list",
    "memory show nothing",
    "memory search tea",
    "identity list",
    "draft list",
    "draft show D",
    "outbox list",
    "webhook list",
    "events list --limit 3",
    "rule list",
    "rule show rul_unknown",
    "audit list --limit 3",
    "key list",
    "account list",
    "account capabilities",
    "account check nobody",
]
WRITES = [
    "message label Work M msg_unknown",
    "message move msg_unknown Archive",
    "message move M Archive",
    "message flag M seen flagged",
    "message update M",
    "message delete msg_unknown",
    f"inbox create {BO}",
    "inbox create a@elsewhere.example",
    f"inbox delete {BO}",
    "label rename Nothing Else",
    "draft update D --subject New",
    "draft delete drf_unknown",
    "send --to nobody --subject x --text y",
    "webhook ping whk_unknown",
    "rule apply pln_unknown",
    "outbox cancel msg_unknown",
    "key delete key_unknown",
    "memory delete nothing",
]


def steady(text: str) -> str:
    """A text without parts that differ between two calls."""
    text = re.sub(r',"details":{.*?}(?=}})', "", text)
    text = re.sub(r"evt_[0-9a-z]+|\b\d{4}-\d\d-\d\dT[\d:]+Z", "…", text)
    return re.sub(r'"(updated_at|last_used_at|next_cursor)":"[^"]*"|--cursor \S+', "", text)


@pytest.mark.parametrize("output", ["table", "json"])
def test_every_command_prints_the_same_with_a_url(local, remote, ids, output):
    differences = []
    for line in READS + WRITES:
        words = [ids.get(word, word) for word in line.split()] + ["-o", output]
        here, there = local(*words), remote(*words)
        if "audit" in line or "events" in line or "key list" in line:
            assert here.code == there.code
        elif [steady(x) for x in (str(here.code), here.out, here.err)] != [
            steady(x) for x in (str(there.code), there.out, there.err)
        ]:
            differences.append((line, here, there))

    assert [] == differences


def test_a_terminal_shows_the_same_with_a_url(server, ids):
    for line in ("search hello", "message show SHORT", f"message list {BO}", "mailbox list"):
        words = [ids.get(word, word) for word in line.split()]

        here = on_a_terminal(server.data, *words, columns=80)
        there = on_a_terminal(
            server.data, *words, columns=80, POSTROOM_URL=server.url, POSTROOM_KEY=server.key
        )

        assert here == there


def test_mail_goes_both_ways_and_files_are_saved(local, remote, ids, tmp_path):
    raw = mail("Through the server")
    received = remote("message", "receive", BO, "-", "-o", "json", stdin=raw).json
    again = remote("message", "receive", BO, "-", "-o", "json", stdin=raw).json
    sent = remote("send", "--to", "ana@example.com", "--subject", "Hi", "--text", "x", "-o", "json")
    replied = remote("message", "reply", received["message_id"], "--text", "Thanks", "-o", "json")
    saved = remote("attachment", "save", ids["PDF"])
    remote("message", "raw", received["message_id"], "--to", tmp_path / "a.eml")

    assert ("received", "duplicate") == (received["status"], again["status"])
    assert ["captured"] * 2 == [sent.json["status"], replied.json["status"]]
    assert "plan 你好.pdf: 8 bytes\n" == saved.out
    assert b"%PDF-1.4" == Path("plan 你好.pdf").read_bytes()
    assert raw == (tmp_path / "a.eml").read_bytes()
    assert 5 == remote("attachment", "save", ids["PDF"]).code


def test_a_key_resolves_only_what_it_may_see(server, local, ids):
    local("inbox", "create", "eve@postroom.localhost")
    words = ("key", "create", "eve", "--scope", "read", "--inbox", "eve@postroom.localhost")
    key = local(*words, "-o", "json").json["key"]
    sends = local("key", "create", "sends", "--scope", "send", "-o", "json").json["key"]
    at = ("--url", server.url, "--key")

    short = local(*at, key, "message", "show", ids["SHORT"])
    whole = local(*at, key, "message", "show", ids["M"])
    blind = local(*at, sends, "message", "show", ids["SHORT"])

    assert (3, 3, 4) == (short.code, whole.code, blind.code)
    assert ids["M"] not in short.err
    assert "scope read" in blind.err


def test_the_key_comes_from_a_file_or_the_environment(server, local, monkeypatch, tmp_path):
    key = tmp_path / "key"
    key.write_text(server.key + "\n")
    key.chmod(0o600)
    at = ("--url", server.url)

    assert 0 == local(*at, "--key-file", key, "inbox", "list").code
    monkeypatch.setenv("POSTROOM_KEY_FILE", str(key))
    assert 0 == local(*at, "inbox", "list").code
    monkeypatch.setenv("POSTROOM_URL", server.url)
    assert 0 == local("inbox", "list").code
    monkeypatch.delenv("POSTROOM_KEY_FILE")
    monkeypatch.setenv("POSTROOM_KEY", server.key)
    assert 0 == local("inbox", "list").code
    key.chmod(0o644)
    assert "chmod 600" in local(*at, "--key-file", key, "inbox", "list").err
    assert 2 == local(*at, "--key", "x", "--key-file", key, "inbox", "list").code


def test_a_wrong_key_a_missing_key_and_an_unreachable_server_are_reported(server, local):
    wrong = local("--url", server.url, "--key", "pk_wrong", "inbox", "list")
    none = local("--url", server.url, "inbox", "list")
    dead = local("--url", f"http://127.0.0.1:{free_port()}", "--key", "x", "inbox", "list")

    assert (4, 4, 7) == (wrong.code, none.code, dead.code)
    assert "does not accept this key" in wrong.err
    assert "needs a key" in none.err
    assert "is the server running there?" in dead.err


@pytest.mark.parametrize(
    "url", ["localhost:8700", "ftp://x", "http://", "http://a:b@c", "http://x:99999"]
)
def test_an_invalid_url_is_refused(local, url):
    refused = local("--url", url, "--key", "x", "inbox", "list")

    assert 2 == refused.code
    assert "--url: " in refused.err


class UnrelatedServer(http.server.BaseHTTPRequestHandler):
    """A web server that is not Postroom."""

    body, status, kind = b"<html>Welcome</html>", 200, "text/html"

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Type", self.kind)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        """Do not log."""


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b"<html>Welcome</html>", "text/html"),
        (200, b"[1, 2]", "application/json"),
        (404, b'{"detail": "Not Found"}', "application/json"),
        (302, b"", "text/html"),
        (500, b"\xff\xfe", "text/plain"),
    ],
)
def test_a_server_that_is_not_postroom_is_recognised(local, status, body, kind):
    handler = type("Handler", (UnrelatedServer,), {"status": status, "body": body, "kind": kind})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()

        refused = local("--url", f"http://127.0.0.1:{other.server_port}", "inbox", "list")
        other.shutdown()

    assert 2 == refused.code
    assert f"is not a Postroom server (HTTP {status}" in refused.err


def test_the_end_of_a_stream_is_reported(local):
    event = b'data: {"id":"evt_1","at":"2026-01-01T00:00:00Z","type":"x","inbox_id":"i","data":{}}'
    body, kind = b": open\n\n" + event + b"\n\n", "text/event-stream"
    handler = type("Handler", (UnrelatedServer,), {"body": body, "kind": kind})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()

        ended = local("--url", f"http://127.0.0.1:{other.server_port}", "events", "tail")
        other.shutdown()

    assert (7, "2026-01-01T00:00:00Z\tx\ti\n") == (ended.code, ended.out)
    assert "the server closed the event stream" in ended.err


ANYWHERE = {
    "account add", "account login", "account sync", "rule check", "rule test", "completion",
    "version", "outbox approve", "outbox reject",
}  # fmt: skip
"""Commands without an operation of their own that need no data folder."""

ARGUMENTS = {
    "import": ["x.mbox", "--inbox", BO],
    "export": ["x.mbox", "--inbox", BO],
    "memory import": ["x"],
    "memory export": ["x"],
    "backup": ["folder"],
    "restore": ["folder"],
    "migrate": ["--from", "folder", "--to", "other"],
}
LOCAL = [row.name for row in COMMANDS if isinstance(row, PlainCommand) and row.name not in ANYWHERE]


@pytest.mark.parametrize("name", LOCAL)
def test_commands_that_need_the_data_folder_say_so(local, name, monkeypatch):
    Path("x").write_text("")
    Path("x.mbox").write_text("")
    Path("folder").mkdir()
    words = [*name.split(), *ARGUMENTS.get(name, [])]

    refused = local("--url", "http://127.0.0.1:1", *words)
    monkeypatch.setenv("POSTROOM_URL", "http://127.0.0.1:1")
    by_setting = local(*words)

    assert (2, 2) == (refused.code, by_setting.code)
    assert f"`postroom {name}` works on a local data folder, not on a server" in refused.err
    assert "drop --url" in refused.err
    assert "unset POSTROOM_URL" in by_setting.err


def test_a_server_and_a_data_folder_exclude_each_other(server, local, monkeypatch):
    both = local("--url", server.url, "--data", server.data, "inbox", "list")
    monkeypatch.setenv("POSTROOM_URL", "http://127.0.0.1:1")
    named = local("--data", server.data, "inbox", "list")
    monkeypatch.delenv("POSTROOM_URL")
    alone = local("--key", "x", "inbox", "list")

    assert (2, 0, 2) == (both.code, named.code, alone.code)
    assert "drop one" in both.err
    assert "--url" in alone.err


def test_an_account_is_signed_in_with_a_password_only(remote):
    refused = remote("account", "add", "x", "--provider", "gmail", "--address", "a@b.example")

    assert 2 == refused.code
    assert "on the machine of the server" in refused.err
