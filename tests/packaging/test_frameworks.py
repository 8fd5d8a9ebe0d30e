"""The recipes for frameworks list and call the tools of a running server, as printed."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.client import Postroom
from postroom.surfaces.mcp import agent_tools
from tests.mails import mail
from tests.packaging.conftest import ROOT, cached_folder
from tests.servers.postroom import Running, running

PAGE = (ROOT / "docs" / "how-to" / "frameworks.md").read_text("utf-8")
RECIPES = {
    section.partition("\n")[0]: found[1]
    for section in PAGE.split("\n## ")
    if (found := re.search(r"```python\n(.*?)```", section, re.DOTALL))
}
SETS = {"LangChain": "langchain"}
"""The pins of a recipe, if they differ from the common ones."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("frameworks")
    with running(folder / "data", options=["--toolsets", "agent"]) as started:
        with Postroom(started.url, started.key) as owner:
            inbox = owner.create_inbox(username="me")
            owner.receive_message(inbox.address, mail("Invoice 7", to=inbox.address))
        yield started


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_lists_the_tools_and_calls_one(server: Running, tmp_path: Path, name: str):
    pins = SETS.get(name, "frameworks")
    made_of = [ROOT / "constraints" / f"{pins}.txt", ROOT / "scripts" / "framework-environment"]
    environment = cached_folder(pins, made_of, "scripts/framework-environment", pins)
    recipe = RECIPES[name].replace("http://127.0.0.1:8700", server.url)

    done = subprocess.run(
        [environment / "bin" / "python", "-c", recipe],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "POSTROOM_KEY": server.key},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stderr
    tools, answer = done.stdout.split("\n", 1)
    assert sorted(tool.name for tool in agent_tools.TOOLS) == sorted(re.findall(r"'(\w+)'", tools))
    assert "Invoice 7" in answer


def test_every_framework_has_a_recipe():
    wanted = {"LangChain", "OpenAI Agents SDK", "LlamaIndex", "Pydantic AI"}

    assert wanted == RECIPES.keys()
