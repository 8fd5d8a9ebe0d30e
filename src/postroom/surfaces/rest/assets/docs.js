// The page: every endpoint of /openapi.json, grouped, with a form to try it.
import { inline, make, prose } from "./page.js";
import { fieldList, fieldRow, members, resolve, rulesOf } from "./schema.js";
import { tryOut } from "./trying.js";

const METHODS = ["get", "post", "patch", "put", "delete"];
const main = document.getElementById("main");
const menu = document.getElementById("menu");

function endpointsOf(root) {
  return Object.entries(root.paths).flatMap(([path, methods]) =>
    METHODS.filter((method) => methods[method]).map((method) => endpoint(path, method, methods[method], root)));
}

function endpoint(path, method, operation, root) {
  const [bodyType, media] = Object.entries(operation.requestBody?.content ?? {})[0] ?? [];
  return {
    path,
    method,
    operation,
    id: operation.operationId,
    tag: operation.tags[0],
    needsKey: operation.security?.length !== 0,
    arguments: (operation.parameters ?? []).flatMap((parameter) => flat(parameter)),
    rules: (operation.parameters ?? []).flatMap((parameter) => rulesOf(parameter.schema)),
    body: media?.schema,
    bodyType,
    bodyIsRequired: operation.requestBody?.required,
    root,
  };
}

// An object in the query is written as its members: show those.
function flat(parameter) {
  const { name, in: place, schema, required = false, description } = parameter;
  if (place !== "query" || schema.type !== "object") {
    return [{ name, place, required, schema: { description, ...schema } }];
  }
  const needed = new Set(schema.required ?? []);
  return Object.entries(schema.properties).map(([inner, innerSchema]) =>
    ({ name: inner, place, required: needed.has(inner), schema: innerSchema }));
}

function card(item) {
  const details = make("details", { class: "endpoint", id: item.id },
    make("summary", {}, make("span", { class: `method ${item.method}` }, item.method.toUpperCase()),
      make("span", { class: "path" }, item.path), make("span", { class: "what" }, item.operation.summary)));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(inside(item));
  });
  return details;
}

function inside(item) {
  return make("div", { class: "inside" },
    prose(item.operation.summary), prose(item.operation.description ?? ""),
    parametersOf(item), bodyOf(item), answersOf(item), tryOut(item, item.root));
}

function parametersOf(item) {
  if (!item.arguments.length) return null;
  return [make("h4", {}, "Parameters"),
    item.rules.map((rule) => make("p", { class: "rule" }, inline(rule))),
    make("div", { class: "fields" }, item.arguments.map((argument) =>
      fieldRow(argument.name, argument.schema, item.root, { required: argument.required, place: argument.place })))];
}

function bodyOf(item) {
  if (!item.body) return null;
  const { properties, required } = members(item.body, item.root);
  const title = `Body · ${item.bodyType}${item.bodyIsRequired ? "" : " · optional"}`;
  return [make("h4", {}, title),
    rulesOf(resolve(item.body, item.root)).map((rule) => make("p", { class: "rule" }, inline(rule))),
    Object.keys(properties).length ? fieldList(properties, required, item.root)
      : make("p", {}, item.operation.requestBody.description ?? "")];
}

function answersOf(item) {
  const rows = Object.entries(item.operation.responses).filter(([status]) => status !== "default");
  return [make("h4", {}, "Answers"), rows.map(([status, response]) => answer(status, resolve(response, item.root), item.root))];
}

function answer(status, response, root) {
  const schema = response.content?.["application/json"]?.schema;
  const whole = schema?.anyOf ? schema.anyOf[0] : schema;
  const { properties, required } = members(whole ?? {}, root);
  const shape = Object.keys(properties).length
    ? make("details", { class: "shape" }, make("summary", {}, "Members"), fieldList(properties, required, root)) : null;
  const kinds = Object.keys(response.content ?? {}).join(", ");
  return make("div", { class: `status ${status < 400 ? "good" : "bad"}` }, make("b", {}, status),
    make("div", {}, inline(status < 400 && kinds ? `${response.description} · ${kinds}` : response.description), shape));
}

function section(tag, items) {
  return make("section", {}, make("h2", { id: tag.name }, tag.name), make("p", {}, tag.description), items.map(card));
}

function problems(root) {
  const rows = root["x-problems"].map(({ code, status, title, meaning }) =>
    make("div", { class: "field", id: code }, make("div", {}, make("span", { class: "name" }, code)),
      make("div", { class: "kind" }, `${status} · ${title}`), make("div", { class: "text" }, inline(meaning))));
  return make("section", {}, make("h2", { id: "errors" }, "errors"),
    make("p", {}, "Every error is application/problem+json; its code is one of these."), make("div", { class: "fields" }, rows));
}

function menuOf(tags, items) {
  const link = (item) => make("a", { href: `#${item.id}`, "data-search": `${item.method} ${item.path} ${item.id} ${item.operation.summary}`.toLowerCase() },
    make("span", { class: `method ${item.method}` }, item.method.toUpperCase()), make("span", {}, item.path.replace("/v1", "").replace(/{\w+_id}/, "{id}")));
  return [...tags.map((tag) => make("div", {}, make("h3", {}, tag.name), items.filter((item) => item.tag === tag.name).map(link))),
    make("div", {}, make("h3", {}, make("a", { href: "#errors" }, "errors")))];
}

function filterMenu(event) {
  const words = event.target.value.toLowerCase().split(/\s+/);
  for (const link of menu.querySelectorAll("a[data-search]")) {
    link.classList.toggle("hidden", !words.every((word) => link.dataset.search.includes(word)));
  }
}

function openNamed() {
  const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (named instanceof HTMLDetailsElement) named.open = true;
  named?.scrollIntoView();
}

async function start() {
  const root = await (await fetch("/openapi.json")).json();
  const items = endpointsOf(root);
  const tags = root.tags.filter((tag) => items.some((item) => item.tag === tag.name));
  document.getElementById("version").textContent = root.info.version;
  main.replaceChildren(make("section", { class: "about", id: "about" }, prose(root.info.description)),
    ...tags.map((tag) => section(tag, items.filter((item) => item.tag === tag.name))), problems(root));
  menu.replaceChildren(...menuOf(tags, items));
  document.getElementById("filter").addEventListener("input", filterMenu);
  addEventListener("hashchange", openNamed);
  openNamed();
}

start().catch((error) => { main.replaceChildren(make("p", {}, `openapi.json cannot be read: ${error.message}`)); });
