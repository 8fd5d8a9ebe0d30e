// JSON Schema for people: a line for each field, references followed.
import { inline, make } from "./page.js";

export function resolve(schema, root) {
  if (!schema?.$ref) return schema ?? {};
  const target = schema.$ref.slice(2).split("/").reduce((node, step) => node[step], root);
  return resolve(target, root);
}

// The members of an object, whatever it is put together from.
export function members(schema, root) {
  const whole = resolve(schema, root);
  const parts = [whole, ...(whole.allOf ?? [])].map((part) => resolve(part, root));
  const deeper = (whole.allOf ?? []).flatMap((part) => (resolve(part, root).allOf ? [members(part, root)] : []));
  return {
    properties: Object.assign({}, ...parts.map((p) => p.properties ?? {}), ...deeper.map((d) => d.properties)),
    required: new Set([...parts.flatMap((p) => p.required ?? []), ...deeper.flatMap((d) => [...d.required])]),
  };
}

export function kindOf(schema, root) {
  const whole = resolve(schema, root);
  if (whole.enum) return whole.enum.filter((value) => value !== null).map((value) => JSON.stringify(value)).join(" or ");
  if ("const" in whole) return JSON.stringify(whole.const);
  const types = [whole.type ?? (whole.allOf || whole.properties ? "object" : "any")].flat();
  const named = types.map((type) => (type === "array" ? `list of ${kindOf(whole.items, root)}` : type));
  if (whole.format) named[0] += ` (${whole.format})`;
  else if (whole.anyOf?.some((option) => option.format)) named[0] += " (time or date)";
  return [named.join(" or "), bounds(whole)].filter(Boolean).join(", ");
}

function bounds(schema) {
  const range = (low, high, unit) => {
    if (low == null && high == null) return "";
    const most = high >= 2 ** 53 ? null : high;
    if (low != null && most != null) return `${low} to ${most}${unit}`;
    return low != null ? `at least ${low}${unit}` : most != null ? `at most ${most}${unit}` : "";
  };
  const said = [
    range(schema.minimum, schema.maximum, ""),
    range(schema.minLength, schema.maxLength, " characters"),
    range(schema.minItems, schema.maxItems, " items"),
    schema.default !== undefined ? `default ${JSON.stringify(schema.default)}` : "",
  ];
  return said.filter(Boolean).join(", ");
}

export function fieldRow(name, schema, root, { required = false, place = "", depth = 0 } = {}) {
  const whole = resolve(schema, root);
  const example = whole.examples?.[0];
  const inner = depth < 4 ? nested(whole, root, depth) : null;
  return make("div", { class: "field" },
    make("div", {}, make("span", { class: "name" }, name), " ", required ? make("span", { class: "needed" }, "required") : null),
    make("div", { class: "kind" }, [place, kindOf(whole, root)].filter(Boolean).join(" · ")),
    schema.description || whole.description || example !== undefined
      ? make("div", { class: "text" }, inline(schema.description ?? whole.description ?? ""),
        example !== undefined ? [" Example: ", make("code", {}, JSON.stringify(example))] : null)
      : null,
    inner);
}

function nested(whole, root, depth) {
  const target = [whole.type].flat().includes("array") ? resolve(whole.items, root) : whole;
  const { properties, required } = members(target, root);
  if (!Object.keys(properties).length) return null;
  return fieldList(properties, required, root, { depth: depth + 1 });
}

export function fieldList(properties, required, root, options = {}) {
  return make("div", { class: "fields" }, Object.entries(properties).map(([name, schema]) =>
    fieldRow(name, schema, root, { ...options, required: required.has(name) })));
}

// The rules between arguments, as sentences.
export function rulesOf(schema) {
  return (schema.allOf ?? []).map(sentence).filter(Boolean);
}

function sentence(rule) {
  const names = (list) => list.map((name) => `\`${name}\``);
  const either = (list) => (list.length < 2 ? list.join("") : `${list.slice(0, -1).join(", ")} or ${list.at(-1)}`);
  if (rule.anyOf) {
    const needed = rule.anyOf.filter((option) => option.required).map((option) => option.required[0]);
    const spared = rule.anyOf.filter((option) => !option.required).flatMap((option) => Object.entries(option.properties));
    const unless = spared.map(([name, value]) => ` unless \`${name}\` is ${either(value.enum)}`).join("");
    return `At least one of ${either(names(needed))} is required${unless}.`;
  }
  if (rule.oneOf) return `Give either ${either(rule.oneOf.map((option) => names(option.required).join(" and ")))}.`;
  if (rule.not?.required) return `${names(rule.not.required).join(" and ")} exclude each other.`;
  if (rule.dependentRequired) {
    const needed = [...new Set(Object.values(rule.dependentRequired).flat())];
    return `${names(Object.keys(rule.dependentRequired)).join(" and ")} only with ${either(names(needed))}.`;
  }
  return "";
}

export function exampleOf(schema, root) {
  const whole = resolve(schema, root);
  if (whole.examples) return whole.examples[0];
  if (whole.default !== undefined) return whole.default;
  const { properties, required } = members(whole, root);
  const rules = whole.allOf ?? [];
  const needed = rules.flatMap((rule) => (rule.anyOf ?? rule.oneOf)?.[0].required ?? []);
  const left = new Set(rules.flatMap((rule) => rule.not?.required?.slice(1) ?? []));
  const wanted = new Set([...required, ...needed]);
  return Object.fromEntries(Object.entries(properties)
    .filter(([name, inner]) => wanted.has(name) || (!wanted.size && !left.has(name) && resolve(inner, root).examples))
    .map(([name, inner]) => [name, exampleOf(inner, root)]));
}
