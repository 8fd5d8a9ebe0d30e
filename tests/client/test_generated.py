"""The client has every operation of the REST API, as declared by its routes."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import UNSET

from postroom.client import AsyncPostroom, Page, Postroom
from postroom.model.page import is_page
from postroom.surfaces.rest.routes import ROUTES
from postroom.surfaces.to_json import extra_page_fields

ROOT = Path(__file__).parents[2]
OPERATIONS = {route.operation.name: route for route in ROUTES}


def arguments(name: str) -> set[str]:
    infos = OPERATIONS[name].operation.request.model_fields.items()
    return {info.alias or field for field, info in infos if field != "same_as_q"}


@pytest.mark.parametrize("kind", [Postroom, AsyncPostroom])
def test_every_operation_is_a_method_with_its_arguments(kind):
    own = {"close", "perform", "open_stream"}
    methods = {n for n, _ in inspect.getmembers(kind, inspect.isroutine) if not n.startswith("_")}

    assert set(OPERATIONS) == methods - own
    for name in OPERATIONS:
        signature = inspect.signature(getattr(kind, name))
        taken = {parameter.removesuffix("_") for parameter in list(signature.parameters)[1:]}
        assert arguments(name) == taken, name


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_a_method_calls_its_endpoint(name):
    route = OPERATIONS[name]
    given = dict.fromkeys(route.path_arguments, "a/b")
    infos = route.operation.request.model_fields
    given |= {n: "x" for n, info in infos.items() if info.is_required() and n not in given}
    if "headers" in given:
        given["headers"] = {}
    asked = []

    class Recorder(Postroom):
        def perform(self, call):
            asked.append(call)

        open_stream = perform

    getattr(Recorder(), name)(**given)

    [call] = asked
    path = route.path
    for argument in route.path_arguments:
        path = path.replace(f"{{{argument}}}", "a%2Fb")
    assert (route.method, path) == (call.method, call.path)
    assert {n for n in given if route.locations[n] == "query"} <= call.query.keys()
    assert {n for n in given if route.locations[n] == "body"} <= (call.body or {}).keys()
    assert route.has_json_body == bool(call.body is not None) or route.method == "POST"


def test_omitted_arguments_are_not_sent():
    sent = []

    class Recorder(Postroom):
        def perform(self, call):
            sent.append(call)

    recorder = Recorder()
    recorder.list_messages(inbox_id="inb_1", unread=False, labels=("a", "b"))
    recorder.update_draft("drf_1", send_at=None, subject=UNSET)
    recorder.send_message("ana@example.com", "x")

    listed, updated, mail = sent
    assert "/v1/messages?inbox_id=inb_1&labels=a&labels=b&unread=false" == listed.target
    assert {"send_at": None} == updated.body
    assert {"to", "subject", "idempotency_key"} == mail.body.keys()


def test_a_coroutine_function_is_one_on_the_awaited_client_only():
    assert asyncio.iscoroutinefunction(AsyncPostroom.get_message)
    assert not asyncio.iscoroutinefunction(Postroom.get_message)
    assert "Args:" in (AsyncPostroom.get_message.__doc__ or "")


def test_every_field_of_a_page_is_an_attribute():
    kinds = {route.operation.result for route in ROUTES if is_page(route.operation.result)}

    beside = {name for kind in kinds for name in extra_page_fields(kind.__origin__)}

    assert beside <= set(Page.__struct_fields__)


def test_the_generated_source_is_current():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "make_client.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)


CHECKED = """
import asyncio
from postroom.client import AsyncPostroom, Postroom

def subjects(mail: Postroom) -> list[str]:
    mail.get_message({wrong})
    return [message.subject for message in mail.list_messages(inbox_id="x")]

async def later(mail: AsyncPostroom) -> list[str]:
    message = await mail.get_message("msg_1")
    return [message.subject, *[m.subject async for m in mail.list_messages(inbox_id="x")]]
"""


def test_a_type_checker_knows_the_methods_of_both_clients(tmp_path: Path):
    (tmp_path / "good.py").write_text(CHECKED.format(wrong='"msg_1"'))
    (tmp_path / "bad.py").write_text(CHECKED.format(wrong="1, unknown=2"))
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir"]
    cache = str(ROOT / ".cache" / "mypy-client")

    good, bad = (
        subprocess.run(
            [*command, cache, str(tmp_path / name)], cwd=tmp_path, capture_output=True, text=True,
            check=False,
        )
        for name in ("good.py", "bad.py")
    )  # fmt: skip

    assert "" == good.stdout
    assert "[arg-type]" in bad.stdout or "[call-arg]" in bad.stdout


HEAVY = ("httpx2", "anyio", "asyncio", "pydantic", "mcp", "starlette", "uvicorn", "apsw", "numpy",
         "jinja2", "cryptography", "click")  # fmt: skip


def test_importing_the_client_loads_no_part_of_the_server():
    program = "import sys, postroom.client; print(*sys.modules)"

    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()

    ours = {name for name in loaded if name.startswith("postroom.")}
    assert {"postroom.errors"} == {n for n in ours if not n.startswith("postroom.client")}
    assert set() == set(HEAVY) & set(loaded)


def test_using_the_client_loads_no_part_of_the_server():
    program = (
        "import sys, postroom.client as c\n"
        "try: c.Postroom('http://127.0.0.1:9', 'k', retries=0).list_inboxes()\n"
        "except Exception: pass\n"
        "print(*sys.modules)"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()

    assert set() == set(HEAVY[3:]) & set(loaded)
