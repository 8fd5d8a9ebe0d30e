"""The OpenAPI document matches the routes, and its changes are reviewed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from postroom.surfaces.rest.http_messages import KINDS
from postroom.surfaces.rest.openapi import document
from postroom.surfaces.rest.routes import ROUTES

GOLDEN = Path(__file__).parents[2] / "golden" / "openapi.json"
DOCS = Path(__file__).parents[3] / "docs" / "reference" / "rest.md"
DOCUMENT = document(["postroom.localhost"])


def operations():
    return [
        (path, method, operation)
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    ]


def walk(value):
    yield value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, (dict, list)):
            yield from walk(inner)


def test_the_document_is_the_reviewed_one(request):
    written = json.dumps(DOCUMENT, indent=2, ensure_ascii=True) + "\n"
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(written)

    assert GOLDEN.read_text() == written


async def test_the_document_is_served(rest):
    assert DOCUMENT == await rest.get("/openapi.json")


def test_every_row_of_the_table_is_in_the_document():
    listed = {(path, method.upper()) for path, method, _ in operations() if "/v1/" in path}

    assert {(row.path, row.method) for row in ROUTES} == listed


def test_every_operation_has_a_unique_name_and_a_description():
    names = [operation["operationId"] for _, _, operation in operations()]

    assert sorted(set(names)) == sorted(names)
    for _, _, operation in operations():
        assert operation["summary"].endswith(".")
        assert operation["tags"][0] in {tag["name"] for tag in DOCUMENT["tags"]}


def test_every_argument_is_described_and_has_an_example():
    bare = []
    for path, method, operation in operations():
        for name, schema, described in described_arguments(operation):
            if not described or ("examples" not in schema and not schema.get("readOnly")):
                bare.append((path, method, name))

    assert [] == [item for item in bare if item[2] != "format"]


def described_arguments(operation):
    for parameter in operation.get("parameters", []):
        schema = parameter["schema"]
        if schema.get("type") == "object":
            for name, inner in schema["properties"].items():
                yield name, inner, inner.get("description")
        else:
            yield parameter["name"], schema, parameter.get("description")
    media = operation.get("requestBody", {}).get("content", {}).get("application/json")
    for name, inner in media["schema"].get("properties", {}).items() if media else []:
        yield name, inner, inner.get("description")


def test_every_example_fits_its_schema():
    schemas = [node for node in walk(DOCUMENT["paths"]) if isinstance(node, dict)]
    with_examples = [schema for schema in schemas if isinstance(schema.get("examples"), list)]

    assert with_examples
    for schema in with_examples:
        for example in schema["examples"]:
            jsonschema.validate(example, schema)


def test_every_reference_can_be_resolved():
    references = {
        node["$ref"] for node in walk(DOCUMENT) if isinstance(node, dict) and "$ref" in node
    }

    for reference in references:
        node = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            node = node[step]

        assert isinstance(node, dict)
    assert references


def test_every_endpoint_but_the_servers_own_and_the_providers_needs_a_key():
    for path, _, operation in operations():
        is_open = operation["tags"] == ["server"] or path == "/v1/inbound/{provider}"
        expected = [] if is_open else ["bearer", "api_key"]

        assert expected == [name for item in operation["security"] for name in item], path


@pytest.mark.parametrize("domains", [["a.example"], ["a.example", "b.example"]])
def test_addresses_are_limited_to_our_domains(domains):
    body = document(domains)["paths"]["/v1/inboxes"]["post"]["requestBody"]["content"]
    pattern = body["application/json"]["schema"]["properties"]["address"]["pattern"]

    for domain in domains:
        assert re.search(pattern, f"help@{domain}")
    assert not re.search(pattern, "help@aXexample")
    assert not re.search(pattern, "help@example.com")


def test_the_handbook_lists_every_endpoint():
    listed = re.findall(r"^\| `(\w+) (/\S*?)(?:\?\S*)?` \|", DOCS.read_text(), re.MULTILINE)

    rows = {(row.method, row.path) for row in ROUTES}
    assert rows == {(method, path) for method, path in listed if path.startswith("/v1/")}


def test_the_handbook_lists_every_kind_of_error():
    listed = re.findall(r"^\| `(\w+)` \| (\d+) \|$", DOCS.read_text(), re.MULTILINE)

    assert [(code, str(kind.status)) for code, kind in KINDS.items()] == listed
