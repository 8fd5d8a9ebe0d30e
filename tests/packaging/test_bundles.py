"""The bundle, the registry entry, the plugin and the image start the server as declared."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from mcp import Client, StdioServerParameters

import postroom
from postroom.config import read_settings
from postroom.surfaces.mcp import agent_tools
from tests.packaging.conftest import ROOT, cached_folder, sources
from tests.servers.ports import free_port
from tests.servers.postroom import environment

UV = Path(sys.prefix) / "bin" / "uv"
TOOLS = [tool.name for tool in agent_tools.TOOLS]


def read(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / path).read_text("utf-8"))
    return found


async def tools_of(command: str | Path, *arguments: str, data: Path, **env: str) -> list[str]:
    """The tools that a stdio server lists when started outside of this tree."""
    given = environment(data, env)
    server = StdioServerParameters(
        command=str(command), args=list(arguments), env=given, cwd=data.parent
    )
    async with Client(server) as client:
        return [tool.name for tool in (await client.list_tools()).tools]


@pytest.fixture(scope="session")
def bundle() -> Path:
    """The bundle, packed by the official tool, which validates its manifest."""
    made = [*sources(), *(ROOT / "bundle").rglob("*"), ROOT / "scripts" / "bundle"]
    folder = cached_folder("bundle", [path for path in made if path.is_file()], "scripts/bundle")
    [packed] = folder.glob("*.mcpb")
    return packed


@pytest.fixture
def unpacked(bundle: Path, tmp_path: Path) -> Path:
    tool = subprocess.run(
        ["scripts/node-package", "bundle/mcpb", "@anthropic-ai/mcpb/dist/cli/cli.js"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    folder = tmp_path / "unpacked"
    words = [*tool.stdout.splitlines(), "unpack", bundle, folder]
    subprocess.run(words, check=True, capture_output=True)
    return folder


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    subprocess.run(["scripts/build", tmp_path], cwd=ROOT, check=True, capture_output=True)
    [built] = tmp_path.glob("*.whl")
    return built


async def test_the_unpacked_bundle_lists_the_tools_of_its_manifest(bundle, unpacked, tmp_path):
    manifest = json.loads((unpacked / "manifest.json").read_text("utf-8"))
    config = manifest["server"]["mcp_config"]
    values = {"data_dir": str(tmp_path / "data"), "read_only": "false"}
    env = {n: v.replace("${user_config.", "{").format(**values) for n, v in config["env"].items()}
    words = [word.replace("${__dirname}", str(unpacked)) for word in config["args"]]

    tools = await tools_of(UV, *words, data=tmp_path / "data", **env)

    assert "uv" == config["command"] == manifest["server"]["type"]
    assert TOOLS == tools == [tool["name"] for tool in manifest["tools"]]
    assert (tmp_path / "data" / "postroom.db").exists()
    assert postroom.__version__ in bundle.name


async def test_the_bundle_can_be_set_to_read_only(small: Path, tmp_path: Path):
    read_only = {"POSTROOM_READ_ONLY": "true"}

    tools = await tools_of(
        small / "python", str(ROOT / "bundle" / "server.py"), data=tmp_path / "data", **read_only
    )

    assert "find_mail" in tools
    assert "send_mail" not in tools


async def test_uvx_runs_the_wheel_without_the_repository(wheel: Path, tmp_path: Path):
    pins = str(ROOT / "constraints" / "run.txt")
    words = ["tool", "run", "--from", str(wheel), "--constraints", pins]

    tools = await tools_of(
        UV, *words, "postroom", "mcp", "--toolsets", "agent", data=tmp_path / "data"
    )

    assert TOOLS == tools


@pytest.fixture
def installed_by_pipx(wheel: Path, tmp_path: Path) -> Path:
    """The program that `pipx install` makes of the wheel."""
    places = {f"PIPX_{name}": str(tmp_path / name) for name in ("HOME", "BIN_DIR", "MAN_DIR")}
    pins = f"--constraint {ROOT / 'constraints' / 'run.txt'}"
    words = [sys.executable, "-m", "pipx", "install", "--backend", "uv", "--pip-args", pins, wheel]
    env = environment(tmp_path / "data", {"PATH": f"{UV.parent}:/usr/bin:/bin", **places})
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return tmp_path / "BIN_DIR" / "postroom"


async def test_pipx_installs_a_program_that_lists_its_tools(installed_by_pipx, tmp_path: Path):
    tools = await tools_of(installed_by_pipx, "mcp", "--toolsets", "agent", data=tmp_path / "data")

    assert TOOLS == tools


SECRET_INPUT = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "description": {"type": "string"},
        "format": {"enum": ["string", "number", "boolean", "filepath"]},
        "isSecret": {"type": "boolean"},
        "default": {"type": "string"},
        "placeholder": {"type": "string"},
    },
    "additionalProperties": False,
}
ARGUMENT = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"enum": ["positional", "named"]}, "value": {"type": "string"}},
    "if": {"properties": {"type": {"const": "named"}}},
    "then": {"required": ["name"]},
    "else": {"anyOf": [{"required": ["value"]}, {"required": ["valueHint"]}]},
}
REGISTRY_ENTRY = {
    "type": "object",
    "required": ["$schema", "name", "description", "version", "packages"],
    "properties": {
        "$schema": {"pattern": "/schemas/2025-12-11/server.schema.json$"},
        "name": {"pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$", "minLength": 3, "maxLength": 200},
        "title": {"type": "string", "minLength": 1, "maxLength": 100},
        "description": {"type": "string", "minLength": 1, "maxLength": 100},
        "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+", "maxLength": 255},
        "packages": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["registryType", "identifier", "version", "transport"],
                "properties": {
                    "registryType": {"enum": ["npm", "pypi", "oci", "nuget", "mcpb"]},
                    "version": {"not": {"const": "latest"}},
                    "transport": {"properties": {"type": {"const": "stdio"}}, "required": ["type"]},
                    "packageArguments": {"type": "array", "items": ARGUMENT},
                    "environmentVariables": {"type": "array", "items": SECRET_INPUT},
                },
            },
        },
    },
}
"""The requirements of the schema of 2025-12-11 on the fields that we use."""


def test_the_registry_entry_is_valid_and_names_settings_that_exist():
    entry = read("server.json")

    jsonschema.validate(entry, REGISTRY_ENTRY)

    [package] = entry["packages"]
    assert postroom.__version__ == entry["version"] == package["version"]
    assert f"mcp-name: {entry['name']} " in (ROOT / "README.md").read_text("utf-8")
    examples = {"filepath": "/tmp/x", "boolean": "true"}
    given = {
        v["name"]: v.get("placeholder") or examples.get(v.get("format", ""), "pk_" + "x" * 20)
        for v in package["environmentVariables"]
    }
    assert read_settings(given).settings.read_only


def words_of_the_registry_entry() -> list[str]:
    [package] = read("server.json")["packages"]
    words = [package["identifier"]]
    for argument in package["packageArguments"]:
        variables = argument.get("variables", {})
        value = argument["value"].format(**{n: v["default"] for n, v in variables.items()})
        words += [argument["name"], value] if argument["type"] == "named" else [value]
    return words


async def test_the_registry_entry_starts_the_server(small: Path, tmp_path: Path):
    program, *words = words_of_the_registry_entry()

    tools = await tools_of(small / program, *words, data=tmp_path / "data")

    assert TOOLS == tools


def test_the_plugin_starts_the_same_server_and_its_skill_teaches_every_tool():
    plugin = read("plugin/.claude-plugin/plugin.json")
    listed = read(".claude-plugin/marketplace.json")["plugins"]
    server = read("plugin/.mcp.json")["mcpServers"]["postroom"]
    skill = (ROOT / "plugin" / "skills" / "mail" / "SKILL.md").read_text("utf-8")
    _, head, body = skill.split("---\n", 2)
    about = yaml.safe_load(head)

    assert {"command": "uvx", "args": words_of_the_registry_entry()} == server
    assert postroom.__version__ == plugin["version"]
    assert [(plugin["name"], "./plugin")] == [(one["name"], one["source"]) for one in listed]
    assert "mail" == about["name"]
    assert len(about["description"]) <= 1024
    assert set(TOOLS) == {word for word in re.findall(r"`(\w+)`", body) if word in TOOLS}


def test_the_dockerfile_follows_good_practice():
    hadolint = Path(sys.prefix) / "bin" / "hadolint"

    found = subprocess.run(
        [hadolint, "--no-color", "-"], input=(ROOT / "deploy" / "Dockerfile").read_bytes(),
        capture_output=True, check=False,
    )  # fmt: skip

    assert (0, b"") == (found.returncode, found.stdout)


def instruction(name: str) -> str:
    text = re.sub(r"\\\n", " ", (ROOT / "deploy" / "Dockerfile").read_text())
    return [line for line in text.splitlines() if line.startswith(f"{name} ")][-1]


def test_the_entry_point_of_the_image_runs_in_a_folder_of_its_own(small: Path, tmp_path: Path):
    """With the environment of the image only, with its paths below a folder, on loopback."""
    folders = {"/opt/postroom": str(small.parent), "/data": str(tmp_path / "data")}
    env = dict(word.split("=", 1) for word in shlex.split(instruction("ENV"))[1:])
    env = {"PATH": "", "HOME": str(tmp_path), **env, "POSTROOM_PORT": str(free_port())}
    for path, folder in folders.items():
        env = {name: value.replace(path, folder) for name, value in env.items()}
    env = {name: value.replace("0.0.0.0:8725", "127.0.0.1:0") for name, value in env.items()}
    env = {name: value.replace("0.0.0.0", "127.0.0.1") for name, value in env.items()}
    words = json.loads(instruction("ENTRYPOINT")[11:]) + json.loads(instruction("CMD")[4:])
    healthy = json.loads(instruction("HEALTHCHECK").partition(" CMD ")[2])
    healthy[-1] = healthy[-1].replace("/opt/postroom/healthy.py", str(ROOT / "deploy/healthy.py"))
    (tmp_path / "data").mkdir()

    server = subprocess.Popen(
        [small / words[0], *words[1:]], env=env, cwd="/", stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        shown = next((line for line in server.stdout if "Ctrl-C" in line), "")
        well = subprocess.run(
            [small / healthy[0], *healthy[1:], str(server.pid)], env=env, check=False
        )
    finally:
        server.send_signal(signal.SIGTERM)
        server.stdout.read()
        code = server.wait(60)

    assert shown
    assert (0, 0) == (well.returncode, code)
    assert (tmp_path / "data" / "postroom.db").exists()
