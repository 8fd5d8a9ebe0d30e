// Trying an endpoint out: a form, the request it makes, the same as a curl line, the answer.
import { copyButton, make } from "./page.js";
import { exampleOf, resolve } from "./schema.js";

const keyField = document.getElementById("key");
const SEPARATE = new Set(["array"]);

export function tryOut(endpoint, root) {
  const form = make("form", { class: "try" }, make("h4", {}, "Try it"));
  const inputs = endpoint.arguments.map((argument) => addInput(form, argument, root));
  const body = endpoint.body && addBody(form, endpoint, root);
  const line = make("pre", {});
  const outcome = make("div", { class: "outcome" });
  const send = make("button", { type: "submit" }, "Send");
  const read = () => request(endpoint, inputs, body);
  const show = () => { line.textContent = curl(read(), mask(keyField.value)); };
  form.append(make("div", { class: "act" }, send),
    make("div", { class: "curl" }, line, copyButton(() => curl(read(), keyField.value))), outcome);
  form.addEventListener("input", show);
  keyField.addEventListener("input", show);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    send.disabled = true;
    outcome.replaceChildren(...await perform(read()));
    send.disabled = false;
  });
  show();
  return form;
}

function addInput(form, argument, root) {
  const schema = resolve(argument.schema, root);
  const example = schema.examples?.[0];
  const written = example === undefined ? "" : [example].flat().join(", ");
  const input = make("input", { placeholder: written, autocomplete: "off", spellcheck: "false" });
  form.append(make("label", {}, make("span", {}, argument.name), input));
  return { ...argument, input, isList: SEPARATE.has(schema.type) };
}

function addBody(form, endpoint, root) {
  const input = make("textarea", { spellcheck: "false" });
  if (endpoint.bodyType === "application/json") {
    input.value = JSON.stringify(exampleOf(endpoint.body, root), null, 2);
  } else {
    input.placeholder = "From: ana@example.com\nSubject: Hello\n\nGood morning.";
  }
  form.append(make("label", { class: "tall" }, make("span", {}, "body"), input));
  return input;
}

function request(endpoint, inputs, body) {
  const query = new URLSearchParams();
  const headers = {};
  let path = endpoint.path;
  for (const { name, place, input, isList } of inputs) {
    const value = input.value.trim();
    if (place === "path") path = path.replace(`{${name}}`, encodeURIComponent(value || input.placeholder));
    if (!value || place === "path") continue;
    if (place === "header") headers[name] = value;
    else for (const item of isList ? value.split(/\s*,\s*/) : [value]) query.append(name, item);
  }
  const url = query.size ? `${path}?${query}` : path;
  const sent = body?.value || undefined;
  if (sent) headers["Content-Type"] = endpoint.bodyType;
  return { method: endpoint.method.toUpperCase(), url, headers, body: sent, needsKey: endpoint.needsKey };
}

function mask(key) {
  return key ? `${key.slice(0, 5)}…` : "$POSTROOM_API_KEY";
}

function curl({ method, url, headers, body, needsKey }, key) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const bearer = key ? quoted(`Authorization: Bearer ${key}`) : '"Authorization: Bearer $POSTROOM_API_KEY"';
  const parts = ["curl", method === "GET" ? "" : `-X ${method}`, quoted(location.origin + url)];
  if (needsKey) parts.push("-H", key?.startsWith("$") ? `"Authorization: Bearer ${key}"` : bearer);
  for (const [name, value] of Object.entries(headers)) parts.push("-H", quoted(`${name}: ${value}`));
  if (body) parts.push("--data-binary", quoted(body));
  return parts.filter(Boolean).join(" ");
}

async function perform({ method, url, headers, body, needsKey }) {
  const sent = needsKey && keyField.value ? { ...headers, Authorization: `Bearer ${keyField.value}` } : headers;
  const started = performance.now();
  try {
    const response = await fetch(url, { method, headers: sent, body });
    const elapsed = Math.round(performance.now() - started);
    return await shown(response, elapsed);
  } catch (error) {
    return [make("p", { class: "line" }, `No answer: ${error.message}`)];
  }
}

async function shown(response, elapsed) {
  const kind = response.headers.get("Content-Type") ?? "";
  const status = make("p", { class: `line status ${response.ok ? "good" : "bad"}` },
    make("b", {}, String(response.status)), `${elapsed} ms · ${kind || "no body"} · ${response.headers.get("X-Request-Id")}`);
  const saved = response.headers.get("Content-Disposition");
  if (saved) return [status, download(await response.blob(), saved)];
  const text = await response.text();
  if (!text) return [status];
  return [status, make("pre", {}, kind.includes("json") ? JSON.stringify(JSON.parse(text), null, 2) : text)];
}

function download(blob, disposition) {
  const coded = /filename\*=UTF-8''([^;]+)/.exec(disposition);
  const plain = /filename="([^"]*)"/.exec(disposition);
  const name = coded ? decodeURIComponent(coded[1]) : plain?.[1] ?? "download";
  return make("p", {}, make("a", { href: URL.createObjectURL(blob), download: name }, `Save ${name} (${blob.size} bytes)`));
}
