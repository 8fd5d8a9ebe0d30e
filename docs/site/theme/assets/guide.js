// Search, a button to copy a sample, and the list of pages. Pages are whole without this script.
"use strict";

const base = document.body.dataset.base;

function element(name, text, className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = className;
  return made;
}

// Wide windows show the list of pages; narrow ones open it on demand.
const all = document.querySelector(".all");
const wide = matchMedia("(min-width: 60rem)");
const arrange = () => { all.open = wide.matches; };
arrange();
wide.addEventListener("change", arrange);

for (const table of document.querySelectorAll("main table")) {
  const frame = element("div", "", "table");
  frame.tabIndex = 0;
  frame.role = "group";
  frame.ariaLabel = "Table";
  table.replaceWith(frame);
  frame.append(table);
}
for (const pre of document.querySelectorAll("main pre")) pre.tabIndex = 0;
for (const block of document.querySelectorAll("main .code")) {
  const button = element("button", "Copy", "copy");
  button.type = "button";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(block.querySelector("pre").innerText);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  block.append(button);
}

// Search: search.json has one entry for each section of each page.
const form = document.querySelector(".search");
const input = form.querySelector("input");
const panel = form.querySelector(".found");
const list = panel.querySelector("ul");
const status = panel.querySelector("[role=status]");
const MOST = 12;
let index;

const fold = (text) => text.normalize("NFKC").toLowerCase();

async function load() {
  const response = await fetch(`${base}/search.json`);
  if (!response.ok) throw new Error(response.statusText);
  const entries = await response.json();
  for (const entry of entries) {
    entry.foldedTitle = fold(`${entry.page} ${entry.title}`);
    entry.foldedText = fold(entry.text);
  }
  return entries;
}

// Every word has to be in an entry. Words of the title count most, then the beginning of words.
function score(entry, words) {
  let total = 0;
  for (const word of words) {
    const inTitle = ` ${entry.foldedTitle}`.includes(` ${word}`) ? 20 : entry.foldedTitle.includes(word) ? 8 : 0;
    const inText = Math.min(5, entry.foldedText.split(word).length - 1);
    if (!inTitle && !inText) return 0;
    total += inTitle + inText;
  }
  return total + (entry.foldedText.includes(words.join(" ")) ? 5 : 0);
}

function excerpt(entry, words) {
  const places = words.map((word) => entry.foldedText.indexOf(word)).filter((at) => at >= 0);
  const from = places.length ? Math.max(0, Math.min(...places) - 40) : 0;
  return (from ? "…" : "") + entry.text.slice(from, from + 150);
}

function show(results, words) {
  list.replaceChildren(...results.slice(0, MOST).map((entry) => {
    const link = element("a", entry.title === entry.page ? entry.page : `${entry.page}: ${entry.title}`);
    link.href = `${base}/${entry.location}`;
    link.append(element("small", excerpt(entry, words)));
    const item = element("li", "");
    item.append(link);
    return item;
  }));
  status.textContent = results.length === 0 ? "Nothing found; try fewer or shorter words." : `${results.length} found`;
  panel.hidden = false;
}

async function search() {
  const asked = input.value;
  const words = fold(asked).split(/\s+/).filter(Boolean);
  if (words.join("").length < 2) {
    panel.hidden = true;
    return;
  }
  try {
    index ??= load();
    const entries = await index;
    if (asked !== input.value) return;
    const found = entries.map((entry) => [score(entry, words), entry]).filter(([points]) => points > 0);
    show(found.sort(([a], [b]) => b - a).map(([, entry]) => entry), words);
  } catch {
    index = undefined;
    list.replaceChildren();
    status.textContent = "The index cannot be loaded; search needs the pages to come from a server.";
    panel.hidden = false;
  }
}

function move(step) {
  const places = [input, ...list.querySelectorAll("a")];
  const at = places.indexOf(document.activeElement);
  places[(at + step + places.length) % places.length].focus();
}

form.hidden = false;
input.addEventListener("input", search);
form.addEventListener("keydown", (event) => {
  if (panel.hidden) return;
  if (event.key === "Escape") {
    panel.hidden = true;
    input.focus();
  } else if (event.key === "ArrowDown") move(1);
  else if (event.key === "ArrowUp") move(-1);
  else return;
  event.preventDefault();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const first = list.querySelector("a");
  if (first && !panel.hidden) location.href = first.href;
});
document.addEventListener("click", (event) => {
  if (!form.contains(event.target)) panel.hidden = true;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select")) return;
  event.preventDefault();
  input.focus();
});
