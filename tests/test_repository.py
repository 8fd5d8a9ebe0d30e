"""The repository itself: make targets, pinned dependencies, builds and CI."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = ROOT / "scripts"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OURS = {"postroom", "postroom-model"}
PINNED = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==\S+")


def run(*command: str, cwd: Path = ROOT) -> str:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", r, maxsplit=1)[0].lower() for r in requirements}


def pins(set_name: str) -> list[str]:
    """The logical lines of a constraints file: one requirement with its hashes each."""
    text = (ROOT / "constraints" / f"{set_name}.txt").read_text()
    return [row for row in text.replace("\\\n", " ").splitlines() if row.strip()]


def pinned_names(set_name: str) -> set[str]:
    return {match["name"] for row in pins(set_name) if (match := PINNED.match(row))}


def test_make_without_a_target_lists_every_target():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z][a-z-]*):", makefile, flags=re.MULTILINE)

    listing = run("make", "--no-print-directory")

    assert targets == re.findall(r"^  make ([a-z-]+) +\S", listing, flags=re.MULTILINE)


@pytest.mark.parametrize("set_name", ["setup", "run", "docs", "test"])
def test_every_pin_has_an_exact_version_and_a_hash(set_name):
    loose = [row for row in pins(set_name) if not (PINNED.match(row) and "--hash=sha256:" in row)]

    assert [] == loose


@pytest.mark.parametrize("path", sorted((ROOT / "constraints").iterdir()), ids=lambda p: p.name)
def test_pins_name_no_package_index(path):
    assert "://" not in path.read_text()


@pytest.mark.parametrize("folder", ["bundle/mcpb", "tests/conformance", "tests/emulate"])
def test_node_lock_files_name_no_registry(folder):
    lock = json.loads((ROOT / folder / "package-lock.json").read_text())
    packages = [entry for path, entry in lock["packages"].items() if path]

    assert [] == [entry for entry in packages if "integrity" not in entry or "resolved" in entry]


def test_every_dependency_is_pinned():
    groups = PROJECT["dependency-groups"]

    extras = PROJECT["project"]["optional-dependencies"]
    optional = [name for extra in extras.values() for name in extra]

    assert names(PROJECT["project"]["dependencies"]) <= pinned_names("run")
    assert names(optional) - OURS <= pinned_names("run")
    assert names(groups["test"]) <= pinned_names("test")
    assert names(groups["setup"]) <= pinned_names("setup")
    assert names(groups["docs"]) <= pinned_names("docs")
    assert names(PROJECT["build-system"]["requires"]) <= pinned_names("setup")


def test_the_sets_of_pins_agree():
    test = set(pins("test"))

    assert set(pins("run")) <= test
    assert set(pins("setup")) <= test
    assert set(pins("docs")) <= test


def test_at_most_25_packages_are_required_to_run():
    project = PROJECT["project"]
    optional = [name for extra in project["optional-dependencies"].values() for name in extra]

    assert len(names(project["dependencies"] + optional) - OURS) <= 25


def test_two_builds_of_the_wheel_are_equal(tmp_path):
    """Neither the folder nor the times of the files may change the wheel."""
    first, second = tmp_path / "first", tmp_path / "elsewhere" / "second"
    shutil.copytree(ROOT / "src", first / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, first)
    shutil.copytree(first, second, copy_function=shutil.copyfile)

    digests = []
    for tree in (first, second):
        run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", cwd=tree)
        [wheel] = (tree / "dist").glob("*.whl")
        digests.append(hashlib.sha256(wheel.read_bytes()).hexdigest())

    assert digests[0] == digests[1]


def test_the_wheel_holds_the_whole_package(tmp_path):
    run("scripts/build", str(tmp_path))
    [wheel] = tmp_path.glob("*.whl")
    package = ROOT / "src" / "postroom"
    files = {
        str(path.relative_to(package.parent))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    packed = set(zipfile.ZipFile(wheel).namelist())

    assert {"postroom/py.typed", "postroom/surfaces/web/site/index.html"} <= packed
    assert set() == files - packed


@pytest.mark.parametrize("script", sorted(p.name for p in SCRIPTS.iterdir() if not p.suffix))
def test_scripts_can_be_run_and_read(script):
    path = SCRIPTS / script

    assert os.access(path, os.X_OK)
    run("bash", "-n", str(path))


def test_ci_does_what_the_readme_says():
    readme = (ROOT / "README.md").read_text()

    assert "make test" in readme
    assert "make run" in readme
    assert "exec make test" in (ROOT / ".ci" / "run").read_text()


SKIPPING = """
import pytest

def test_without_a_server():
    pytest.skip("no server here")

@pytest.mark.may_skip("not every kernel can")
def test_without_a_kernel():
    pytest.skip("an old kernel")
"""


@pytest.mark.parametrize(("ci", "closing"), [("true", "1 failed, 1 skipped"), ("", "2 skipped")])
def test_ci_fails_on_a_skip_without_may_skip(tmp_path, ci, closing):
    (tmp_path / "test_skipping.py").write_text(SKIPPING)

    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.plugins.skips", "-W", "ignore", "."],
        cwd=tmp_path,
        env={**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert closing in result.stdout


def test_the_environment_has_the_pinned_pip_and_no_setuptools():
    [pin] = [row for row in pins("setup") if row.startswith("pip==")]
    wanted = pin.split()[0].removeprefix("pip==")

    installed = json.loads(run(sys.executable, "-m", "pip", "list", "--format", "json"))
    found = {package["name"].lower(): package["version"] for package in installed}

    assert wanted == found["pip"]
    assert int(wanted.partition(".")[0]) >= 26
    assert "setuptools" not in found
    assert "setuptools" not in pinned_names("test") | pinned_names("run") | pinned_names("setup")


def test_the_image_has_no_package_installer():
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    build, _, image = dockerfile.rpartition("\nFROM ")

    assert build.index("-r /src/constraints/setup.txt") < build.index("--without-pip")
    assert "pip uninstall --yes pip" in image
    assert "ensurepip" in image
