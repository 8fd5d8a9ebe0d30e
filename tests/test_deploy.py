"""The files in deploy/ name settings and commands that exist."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

from postroom.app import open_app
from postroom.config import SETTINGS, read_settings
from postroom.surfaces.cli.command_table import TOP_LEVEL_HELP
from postroom.surfaces.rest.server import build
from tests.servers.ports import free_port
from tests.servers.postroom import command, environment, running

FOLDER = Path(__file__).parents[1] / "deploy"
FILES = sorted(FOLDER.iterdir())


def test_there_are_deploy_files() -> None:
    assert {"Dockerfile", "compose.yaml", "postroom.service"} <= {file.name for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_named_setting_exists(file: Path) -> None:
    named = set(re.findall(r"POSTROOM_[A-Z_]+", file.read_text()))

    assert set() == named - {setting.variable for setting in SETTINGS}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_started_command_exists(file: Path) -> None:
    started = re.findall(r'(?:bin/postroom |command: \["|CMD \[")([a-z]+)', file.read_text())

    assert set() == set(started) - {*TOP_LEVEL_HELP, "posix", "python"}


def compose() -> dict[str, Any]:
    found = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    assert isinstance(found, dict)
    return found


def environment_of_the_compose_file(secret: str) -> dict[str, str]:
    """The environment of the server if every secret has this value."""
    given = compose()["services"]["postroom"]["environment"]
    chosen = {name: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value) for name, value in given.items()}
    return {name: re.sub(r"\$\{.*?\}", lambda _: secret, v) for name, v in chosen.items()}


def test_the_services_of_the_compose_file_match() -> None:
    services, volumes = compose()["services"], compose()["volumes"]
    for service in services.values():
        assert ("image" in service) != ("build" in service)
        assert set(service.get("depends_on", ())) <= services.keys()
        mounted = {volume.partition(":")[0] for volume in service.get("volumes", ())}
        assert mounted <= volumes.keys()
    settings = services["postroom"]["environment"]
    urls = (settings["POSTROOM_DATABASE_URL"], settings["AWS_ENDPOINT_URL"])
    hosts = [urlsplit(re.sub(r"\$\{.*?\}", "x", url)).hostname for url in urls]
    assert ["postgres", "s3"] == hosts
    assert {"postgres", "s3"} <= services.keys()


def test_systemd_signals_only_the_main_process() -> None:
    assert "KillMode=mixed" in (FOLDER / "postroom.service").read_text().splitlines()


def test_every_secret_of_the_compose_file_is_required() -> None:
    text = (FOLDER / "compose.yaml").read_text()

    named = set(re.findall(r"\$\{(\w+)", text))
    asked = set(re.findall(r"\$\{(\w+):[?-]", text))

    assert named == asked


def test_any_password_works_in_the_database_url_of_the_compose_file() -> None:
    password = "p/a+s=s%@:w#o$rd"
    given = environment_of_the_compose_file(password)

    read = conninfo_to_dict(given["POSTROOM_DATABASE_URL"])

    assert {"user": "postroom", "host": "postgres", "dbname": "postroom"} == read
    assert password == given["PGPASSWORD"]


async def test_the_compose_network_may_connect(tmp_path: Path) -> None:
    url = environment_of_the_compose_file("any")["POSTROOM_PUBLIC_URL"]
    given = {"POSTROOM_DATA_DIR": str(tmp_path), "POSTROOM_PUBLIC_URL": url}
    async with open_app(read_settings(given).settings) as app:
        transport = httpx2.ASGITransport(app=build(app))
        async with httpx2.AsyncClient(transport=transport) as other:
            answer = await other.get("http://postroom:8700/healthz")

    assert 200 == answer.status_code


def test_the_settings_of_the_compose_file_are_accepted(tmp_path: Path) -> None:
    given = environment_of_the_compose_file("ab" * 32)
    ours = {name: value for name, value in given.items() if name.startswith("POSTROOM_")}

    settings = read_settings(ours, folder=tmp_path).settings

    assert "s3://postroom/mail" == settings.blobs_url
    assert 32 == len(settings.audit_key or b"")


def test_the_bucket_exists_when_its_server_is_ready() -> None:
    """The S3 server presents each of its folders as a bucket."""
    given = environment_of_the_compose_file("any")
    bucket = urlsplit(given["POSTROOM_BLOBS_URL"]).hostname
    server = compose()["services"]["s3"]
    kind, folder = server["command"]

    assert "posix" == kind
    assert [f"bucket:{folder}/{bucket}"] == server["volumes"]


def test_the_bucket_is_used_at_its_address_with_its_credentials() -> None:
    given = environment_of_the_compose_file("any")
    server = compose()["services"]["s3"]["environment"]

    assert urlsplit(given["AWS_ENDPOINT_URL"]).port == int(server["VGW_PORT"].removeprefix(":"))
    assert given["AWS_ACCESS_KEY_ID"] == server["ROOT_ACCESS_KEY"]
    assert given["AWS_REGION"] == server["VGW_REGION"]
    assert (
        f"{given['AWS_ENDPOINT_URL']}{server['VGW_HEALTH']}".replace("s3", "127.0.0.1")
        == (compose()["services"]["s3"]["healthcheck"]["test"][-1])
    )


def test_the_server_waits_until_its_services_are_healthy() -> None:
    services = compose()["services"]

    for name, when in services["postroom"]["depends_on"].items():
        assert {"condition": "service_healthy"} == when
        assert "healthcheck" in services[name]


def test_every_image_has_a_pinned_version() -> None:
    images = [s["image"] for s in compose()["services"].values() if "image" in s]
    images += [rest.split()[0] for word, rest in instructions() if word == "FROM"]

    assert 4 == len(images)
    for image in images:
        assert re.fullmatch(r"[a-z./]+:v?\d+\.\d+(\.\d+)?(-[a-z-]+)?", image), image


def is_sent(path: str) -> bool:
    """Whether a file of the repository is in the build context of the container."""
    sent = True
    for line in (FOLDER.parent / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        starts = ["/".join(path.split("/")[:n]) for n in range(1, path.count("/") + 2)]
        names = path.split("/") if line.startswith("**/") else starts
        if not line.startswith("#") and (pattern == "*" or pattern in names):
            sent = line.startswith("!")
    return sent


def test_the_build_context_has_only_files_that_are_copied() -> None:
    copied = {
        path
        for word, rest in instructions()
        if word == "COPY" and not rest.startswith("--from")
        for path in rest.split()[:-1]
    }

    assert copied == {path for path in copied if is_sent(path)}
    kept = (".run/house/postroom.db", ".venv/bin/python", ".git/config", "tests/mails.py")
    assert [] == [path for path in (*kept, "src/postroom/__pycache__/app.pyc") if is_sent(path)]


def health(process: subprocess.Popen[bytes], port: str) -> int:
    """The exit code of the health check of a container in which a program runs."""
    line = [sys.executable, str(FOLDER / "healthy.py"), str(process.pid)]
    env = {**os.environ, "POSTROOM_PORT": port}
    return subprocess.run(line, env=env, check=False, stderr=subprocess.DEVNULL).returncode


def test_a_server_is_healthy_if_ready_and_a_worker_if_running(tmp_path: Path) -> None:
    with running(tmp_path / "data", is_forked=False) as server:
        port = server.url.rpartition(":")[2]
        found = [health(server.process, port), health(server.process, str(free_port()))]
        worker = subprocess.Popen(command("worker"), env=server.env, stdout=subprocess.PIPE)
        assert worker.stdout is not None
        worker.stdout.readline()
        found.append(health(worker, str(free_port())))
        worker.terminate()
        worker.communicate()
        found.append(health(worker, port))

    assert [0, 1, 0, 1] == found


@pytest.mark.parametrize("form", ["--port={}", "--port {}"])
def test_the_health_check_uses_the_configured_port(tmp_path: Path, form: str) -> None:
    words = ("serve", *form.format(free_port()).split())
    env = environment(tmp_path / "data")
    server = subprocess.Popen(command(*words), env=env, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        list(takewhile(lambda line: b"Ctrl-C" not in line, server.stdout))

        assert 0 == health(server, str(free_port()))
    finally:
        server.terminate()
        server.communicate()


def test_the_systemd_unit_says_how_to_install_its_program() -> None:
    text = (FOLDER / "postroom.service").read_text()
    [program] = re.findall(r"^ExecStart=(\S+)/bin/postroom", text, re.MULTILINE)

    assert f"-m venv {program}\n" in text
    assert all((FOLDER.parent / path).is_file() for path in re.findall(r"-r (\S+)", text))


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Dockerfile and its words."""
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines if line.strip()]


def test_the_dockerfile_names_files_that_exist() -> None:
    known = {"FROM", "COPY", "RUN", "USER", "ENV", "VOLUME", "EXPOSE"}
    known |= {"HEALTHCHECK", "ENTRYPOINT", "CMD", "WORKDIR"}
    stages = set[str]()
    for word, rest in instructions():
        assert word in known, word
        if word == "FROM":
            assert re.fullmatch(r"[a-z]+:[\w.-]+( AS \w+)?", rest), "say which version"
            stages |= {rest.split()[-1]}
        if word == "COPY" and rest.startswith("--from="):
            assert rest.partition("=")[2].split()[0] in stages
        elif word == "COPY":
            assert all((FOLDER.parent / path).exists() for path in rest.split()[:-1])
        if word in ("CMD", "ENTRYPOINT"):
            assert all(isinstance(part, str) for part in json.loads(rest))
        if word == "RUN":
            installs = re.findall(r"\bpip (?:--python \S+ )?install\b", rest)
            assert rest.count("--no-cache-dir") == len(installs)


def test_the_container_is_not_root_and_has_a_volume() -> None:
    last = [rest for word, rest in instructions() if word == "USER"]
    names = [word for word, _ in instructions()]

    [made] = [rest for word, rest in instructions() if word == "RUN" and "useradd" in rest]

    assert ["10001"] == last
    assert "--uid 10001 postroom" in made
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert [("VOLUME", "/data")] == [i for i in instructions() if i[0] == "VOLUME"]


@pytest.mark.parametrize(("wrong", "is_good"), [("", True), ("NoNewPrivileges", False)])
def test_systemd_accepts_the_unit(tmp_path: Path, wrong: str, is_good: bool) -> None:
    text = (FOLDER / "postroom.service").read_text()
    text = text.replace("/opt/postroom/bin/postroom", "/bin/true")
    unit = tmp_path / "postroom.service"
    unit.write_text(text.replace(wrong, "Misspelt") if wrong else text)

    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )

    assert is_good == ("" == done.stdout + done.stderr), done.stderr
