// What the pages do beyond links and forms. Every page works without this file.
// One block per subject; a block uses others only by what they return.
"use strict";

const byId = (id, root = document) => root.getElementById(id);

// Times: shown in the zone of the reader. The server writes them in UTC.
const times = (() => {
  const parts = new Intl.DateTimeFormat("en-US", {
    year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23",
    timeZoneName: "short",
  });

  function fields(moment) {
    return Object.fromEntries(parts.formatToParts(moment).map(({type, value}) => [type, value]));
  }

  function long(at) {
    return `${at.day} ${at.month} ${at.year}, ${at.hour}:${at.minute} ${at.timeZoneName}`;
  }

  function short(at, now) {
    if (at.year !== now.year) return `${at.day} ${at.month} ${at.year}`;
    return at.month === now.month && at.day === now.day ? `${at.hour}:${at.minute}` : `${at.day} ${at.month}`;
  }

  function localize(root) {
    const now = fields(new Date());
    for (const time of root.querySelectorAll("time[datetime]")) {
      const moment = new Date(time.dateTime);
      if (isNaN(moment)) continue;
      const at = fields(moment);
      const words = "short" in time.dataset ? short(at, now) : long(at);
      if (time.textContent !== words) time.textContent = words;
      if (time.title) time.title = long(at);
    }
  }

  return {localize};
})();

// The menu of the navigation closes on Esc, and when the reader goes elsewhere.
(() => {
  const menu = document.querySelector("details.menu"), button = menu?.querySelector("summary");
  if (!menu) return;
  const close = () => { menu.open = false; };
  document.addEventListener("click", ({target}) => { if (!menu.contains(target)) close(); });
  menu.addEventListener("focusout", ({relatedTarget}) => { if (relatedTarget && !menu.contains(relatedTarget)) close(); });
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    event.stopPropagation();
    close();
    button.focus();
  });
})();

// Pages: fetch one, and make parts of the shown page equal to it.
const pages = (() => {
  const afterwards = [];

  htmx.registerExtension("postroom", {
    // Whoever opened a part of the page keeps it open.
    htmx_before_morph_attr: (element, {attrName}) => !(attrName === "open" && element.tagName === "DETAILS"),
  });

  const hasTyped = () => [...document.querySelectorAll("main textarea, main form:not(.search) input[type=text]")]
    .some((field) => field.value !== field.defaultValue);

  function leave(signIn) {
    if (!hasTyped()) return location.assign(signIn);
    const notice = document.createElement("p"), link = document.createElement("a");
    notice.className = "notice bad";
    Object.assign(link, {href: signIn, target: "_blank", textContent: "Sign in in a new window"});
    notice.append("You are signed out. Your text is still here. ", link);
    toast.show(notice);
  }

  // A page of this server. If the session has ended, the browser leaves for the sign-in page,
  // unless something was typed.
  async function get(url, options = {}) {
    const headers = {"HX-Request": "true", "HX-Current-URL": location.href, Accept: "text/html"};
    const response = await fetch(url, {...options, headers});
    const signIn = response.headers.get("HX-Redirect");
    if (signIn) {
      leave(signIn);
      return new Promise(() => {});
    }
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    times.localize(page);
    return {response, page};
  }

  // Make an element equal to the one with its id in another page; focus and typed text stay.
  async function morph(page, id) {
    const shown = byId(id), fresh = byId(id, page);
    if (!shown || !fresh || shown.isEqualNode(fresh)) return;
    await htmx.swap({text: fresh.outerHTML, target: shown, sourceElement: shown, swap: "outerMorph"});
  }

  async function replace(page, id) {
    const shown = byId(id), fresh = byId(id, page);
    if (!shown || !fresh) return;
    const copy = document.importNode(fresh, true);
    shown.replaceWith(copy);
    htmx.process(copy);
  }

  // How much mail is held: in the navigation and in the title of the window.
  async function showHeld(page) {
    await morph(page, "held");
    const held = page.title.match(/^\(\d+\) /)?.[0] ?? "";
    document.title = held + document.title.replace(/^\(\d+\) /, "");
  }

  const changed = () => afterwards.forEach((arrange) => arrange());
  const whenChanged = (arrange) => { afterwards.push(arrange); arrange(); };

  times.localize(document);
  document.addEventListener("htmx:after:swap", () => times.localize(document));
  return {get, morph, replace, showHeld, changed, whenChanged};
})();

// Toasts: what a change did, with a button to undo it.
const toast = (() => {
  const SHOWN_MS = 12000;
  const place = document.createElement("div");
  let timer, form;
  place.id = "toast";
  place.role = "status";

  function hide() {
    if (place.matches(":hover, :focus-within")) return wait();
    place.replaceChildren();
  }

  function wait() {
    clearTimeout(timer);
    timer = setTimeout(hide, SHOWN_MS);
  }

  // Show a notice of another page. The key for undo works after it is hidden, too.
  function show(notice) {
    if (!notice) return;
    if (notice.role === "status") notice.removeAttribute("role");
    form = notice.querySelector("form");
    // A screen reader says what is put into a region that it knows already.
    const pause = place.isConnected ? 0 : 100;
    if (pause) document.body.append(place);
    setTimeout(() => place.replaceChildren(document.adoptNode(notice)), pause);
    wait();
  }

  function undo() {
    if (!form) return;
    if (!form.isConnected) {
      form.hidden = true;
      place.append(form);
    }
    form.requestSubmit();
  }

  return {show, undo};
})();

// Mail: the list, the mail beside it, search, selection and changes without loading whole pages.
const mail = (() => {
  const MOST_PAGES = 6;
  const isShown = () => byId("list") !== null;
  const rows = () => [...document.querySelectorAll("#mails > .mail-row")];
  const linkOf = (row) => row?.querySelector(":scope > a");
  const idOf = (row) => row?.id.slice("row-".length);
  const rowOf = (id) => byId(`row-${id}`);
  const openId = () => location.pathname.match(/^\/mail\/([^/]+)$/)?.[1];
  const focusedRow = () => document.activeElement?.closest(".mail-row");
  const isPhone = () => getComputedStyle(byId("list")).display === "none";
  let pending = new AbortController();
  let changedIds = [], openedFrom = "";

  // The requests of earlier clicks and keys have no effect any more.
  function supersede() {
    pending.abort();
    pending = new AbortController();
    return pending.signal;
  }

  const quietly = (work) => work.catch((error) => {
    if (error.name !== "AbortError") console.error(error);
  });

  function focusRow(row) {
    const link = linkOf(row);
    link?.focus({preventScroll: true});
    row?.scrollIntoView({block: "nearest"});
    return Boolean(link);
  }

  function mark(id) {
    for (const row of rows()) {
      const isOpen = idOf(row) === id;
      row.classList.toggle("current", isOpen);
      if (isOpen) linkOf(row).setAttribute("aria-current", "true");
      else linkOf(row).removeAttribute("aria-current");
    }
  }

  // Rows that were loaded by scrolling stay below a first page that was fetched again.
  function keepLoadedRows(page) {
    const fresh = byId("mails", page), next = byId("older", page);
    const last = fresh?.lastElementChild && byId(fresh.lastElementChild.id);
    if (!last || !next) return;
    for (let row = last.nextElementSibling; row; row = row.nextElementSibling) {
      if (!byId(row.id, page)) fresh.append(row.cloneNode(true));
    }
    const older = byId("older");
    if (older) next.replaceWith(older.cloneNode(true));
    else next.remove();
  }

  async function showList(page) {
    const row = focusedRow(), at = rows().indexOf(row), id = openId();
    for (const open of page.querySelectorAll(".mail-row.current")) open.classList.remove("current");
    const list = byId("list"), first = rows().find((one) => one.getBoundingClientRect().bottom > 0);
    const before = first?.getBoundingClientRect().top;
    await pages.morph(page, "list");
    mark(id);
    if (first?.isConnected && list.scrollTop > 0) list.scrollTop += first.getBoundingClientRect().top - before;
    if (row && !row.isConnected) focusRow(rows()[Math.min(at, rows().length - 1)]);
    pages.changed();
  }

  // Fetch the list again: its first page, or as many as are shown.
  async function refresh({whole = false} = {}) {
    const list = byId("list"), {url} = list.dataset, signal = pending.signal;
    const {response, page} = await pages.get(url, {signal});
    if (!response.ok) return;
    for (let count = 1; whole && count < MOST_PAGES; count++) {
      const mails = byId("mails", page), older = byId("older", page);
      if (!older || mails.children.length >= rows().length) break;
      const next = await pages.get(older.querySelector("a").getAttribute("href"), {signal});
      mails.append(...(byId("mails", next.page)?.children ?? []));
      const rest = byId("older", next.page);
      if (rest) older.replaceWith(rest);
      else older.remove();
    }
    if (signal.aborted || url !== byId("list")?.dataset.url) return;
    keepLoadedRows(page);
    await showList(page);
    await pages.morph(page, "places");
    await pages.showHeld(page);
  }

  function showReading(page) {
    pages.replace(page, "reading");
    const panes = document.querySelector(".panes");
    panes.classList.toggle("opened", page.querySelector(".panes").classList.contains("opened"));
    document.title = page.title;
    byId("reading").scrollTop = 0;
  }

  // Show another list, with its filters; or the page of a mail with the list that belongs to it.
  async function go(url, {push = true} = {}) {
    const {response, page} = await pages.get(url, {signal: supersede()});
    if (!page.querySelector(".panes")) return location.assign(url);
    if (push) history.pushState({htmx: true}, "", response.url);
    const reading = byId("reading"), fresh = byId("reading", page);
    if (!reading.isEqualNode(fresh)) pages.replace(page, "reading");
    await pages.morph(page, "main");
    document.title = page.title;
    pages.changed();
  }

  // Show a mail; the list beside it stays as it is.
  async function open(url, {push = true, focus = true} = {}) {
    const {response, page} = await pages.get(url, {signal: supersede()});
    if (!response.ok || !page.querySelector(".panes.opened")) return location.assign(url);
    const focused = document.activeElement?.closest(".tabs a")?.textContent;
    openedFrom = focusedRow()?.id ?? openedFrom;
    if (push) history.pushState({htmx: true, list: true}, "", url);
    showReading(page);
    mark(openId());
    const hash = new URL(url, location).hash.slice(1);
    if (hash) byId(hash)?.scrollIntoView();
    else if (isPhone()) scrollTo(0, 0);
    const tab = focused && [...document.querySelectorAll("#reading .tabs a")].find((a) => a.textContent === focused);
    if (tab) tab.focus();
    else if (focus) focusMail();
    await pages.morph(page, "places");
    await pages.showHeld(page);
  }

  function focusMail() {
    const title = document.querySelector("#reading h1");
    if (!title) return;
    title.tabIndex = -1;
    title.focus({preventScroll: true});
  }

  // Back and forward: the list stays if it is the same one, and the mail that was open has focus.
  async function restore() {
    const id = document.querySelector(".mail-row.current")?.id ?? openedFrom;
    const {page} = await pages.get(location.href, {signal: supersede()});
    const isSame = byId("list", page)?.dataset.filters === byId("list").dataset.filters;
    if (!isSame || !page.querySelector(".panes")) await go(location.href, {push: false});
    else {
      showReading(page);
      mark(openId());
      keepLoadedRows(page);
      if (!new URL(byId("list", page).dataset.url, location).searchParams.has("cursor")) await showList(page);
    }
    if (openId()) focusMail();
    else if (id) focusRow(byId(id));
  }

  function close() {
    const id = openId();
    if (!isPhone()) return void focusRow(rowOf(id) ?? focusedRow() ?? byId(openedFrom) ?? rows()[0]);
    if (history.state?.list) history.back();
    else quietly(go(byId("list").dataset.url));
  }

  // Send a form that changes mail, and say what it did; the undo is in what is said.
  async function send(action, data) {
    const form = new URL(action, location), body = new URLSearchParams(data);
    const {response, page} = await pages.get(form, {method: "POST", body});
    toast.show(page.querySelector("main .notice"));
    if (!response.ok) return;
    const isUndo = form.pathname === "/undo", at = rows().indexOf(rowOf(openId()));
    if (!isUndo) changedIds = body.getAll("id");
    const landed = new URL(response.url), hasLeft = landed.pathname === "/mail";
    if (form.pathname !== "/mail" && !isUndo) {
      if (hasLeft) history.replaceState({htmx: true}, "", byId("list").dataset.url);
      showReading(page);
      mark(openId());
    } else if (openId() && (isUndo ? changedIds : body.getAll("id")).includes(openId())) {
      await open(location.href, {push: false, focus: false});
    }
    await refresh({whole: true});
    if (isUndo) focusRow(rowOf(changedIds[0]));
    else if (hasLeft && (document.activeElement === document.body || form.pathname !== "/mail")) {
      focusRow(rows()[Math.min(Math.max(at, 0), rows().length - 1)]);
    }
    live.tell({type: "changed"});
  }

  // Change mail by a key: what is selected, or the mail in focus, or the one that is open.
  function change(does) {
    const selected = rows().filter((row) => row.querySelector("input:checked")), row = focusedRow();
    const inList = byId("mails")?.closest("form");
    const inMail = document.querySelector("#reading .actions form");
    const form = selected.length || row || !openId() ? inList : inMail;
    if (!form?.querySelector("[name=do]")) return;
    const ids = selected.length ? selected.map(idOf) : [row ? idOf(row) : openId()];
    if (!ids[0]) return;
    const data = new URLSearchParams({csrf: form.elements.csrf.value, do: does});
    ids.forEach((id) => data.append("id", id));
    quietly(send(form.action, data));
  }

  function toggle(is, on, off) {
    const row = focusedRow() ?? rowOf(openId());
    if (row) change(is(row) ? off : on);
  }

  async function loadMore() {
    const older = byId("older"), link = older?.querySelector("a");
    if (!link || older.ariaBusy) return;
    older.ariaBusy = "true";
    try {
      const {response, page} = await pages.get(link.href);
      if (!response.ok || !older.isConnected) return;
      const fresh = [...(byId("mails", page)?.children ?? [])].filter((row) => !byId(row.id));
      byId("mails").append(...fresh.map((row) => document.adoptNode(row)));
      const next = byId("older", page);
      if (next) older.replaceWith(document.adoptNode(next));
      else older.remove();
      mark(openId());
      pages.changed();
    } finally {
      older.ariaBusy = null;
    }
  }

  // j and k move focus; they load more at the end.
  async function move(step) {
    const list = rows(), row = focusedRow() ?? rowOf(openId()), at = list.indexOf(row);
    if (at + step >= list.length) await loadMore();
    focusRow(rows()[row ? Math.max(at + step, 0) : 0]);
  }

  function countSelected() {
    const place = byId("selected"), boxes = document.querySelectorAll("#mails .tick input");
    if (!place) return;
    const count = [...boxes].filter((box) => box.checked).length;
    place.textContent = count ? `${count} selected` : "";
    const link = document.querySelector("[data-select]");
    if (!link) return;
    link.dataset.select = count && count === boxes.length ? "none" : "all";
    link.textContent = link.dataset.select === "none" ? "Select none" : "Select all";
  }

  function select(row, isOn = !row?.querySelector(".tick input")?.checked) {
    const box = row?.querySelector(".tick input");
    if (box) box.checked = isOn;
  }

  let lastTicked;
  function tick(event) {
    const box = event.target.closest(".tick input"), row = box?.closest(".mail-row");
    if (!row) return;
    const from = rows().indexOf(byId(lastTicked)), to = rows().indexOf(row);
    if (event.shiftKey && from >= 0) {
      rows().slice(Math.min(from, to), Math.max(from, to) + 1).forEach((one) => select(one, box.checked));
    }
    lastTicked = row.id;
    countSelected();
  }

  function follow(event) {
    const link = event.target.closest("a");
    if (!link?.closest(".panes") || link.hasAttribute("hx-get") || link.target || event.defaultPrevented) return;
    if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const {pathname, origin} = new URL(link.href);
    if (origin !== location.origin || !/^\/mail(\/[^/]+)?$/.test(pathname)) return;
    event.preventDefault();
    if (link.dataset.select) {
      rows().forEach((row) => select(row, link.dataset.select === "all"));
      countSelected();
    } else if (link.closest(".to-list") && history.state?.list) history.back();
    else if (pathname === "/mail") quietly(go(link.href).then(() => isPhone() || scrollTo(0, 0)));
    else quietly(open(link.href));
  }

  // Search as you type. Back leads to what was shown before the search.
  let typing, isSearching = false;
  function searchSoon(event) {
    const form = event.target.closest("form.search");
    if (!form) return;
    clearTimeout(typing);
    typing = setTimeout(() => searchNow(form), event.type === "input" ? 180 : 0);
  }

  function searchNow(form) {
    clearTimeout(typing);
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value.trim()));
    const url = `/mail${query.size ? `?${query}` : ""}`;
    if (url === location.pathname + location.search) return;
    history[isSearching ? "replaceState" : "pushState"]({htmx: true}, "", url);
    isSearching = true;
    quietly(go(url, {push: false}));
  }

  if (!isShown()) return {isShown};

  const observer = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) quietly(loadMore());
  }, {rootMargin: "400px", scrollMargin: "400px"});
  pages.whenChanged(() => {
    observer.disconnect();
    if (byId("older")) observer.observe(byId("older"));
    countSelected();
  });
  document.addEventListener("click", follow);
  document.addEventListener("click", tick);
  document.addEventListener("input", searchSoon);
  document.addEventListener("focusout", (event) => { if (event.target.closest("form.search")) isSearching = false; });
  document.addEventListener("submit", (event) => {
    const form = event.target, {pathname} = new URL(form.action, location);
    if (form.matches(".search")) {
      event.preventDefault();
      searchNow(form);
    } else if (/^\/(mail(\/[^/]+)?|undo)$/.test(pathname) && !form.hasAttribute("hx-post")) {
      event.preventDefault();
      quietly(send(form.action, new FormData(form, event.submitter)));
    }
  });
  document.addEventListener("htmx:before:history:restore", (event) => {
    if (!/^\/mail(\/[^/]+)?$/.test(location.pathname)) return;
    event.preventDefault();
    quietly(restore());
  });

  const compose = (query) => {
    const id = focusedRow() ? idOf(focusedRow()) : openId();
    if (id && document.querySelector('.panes a[href="/compose"]')) location.assign(`/compose?${query}=${id}`);
  };
  const actions = {
    next: () => quietly(move(1)),
    previous: () => quietly(move(-1)),
    return: close,
    select: () => { select(focusedRow()); countSelected(); },
    search: () => byId("q").select(),
    archive: () => change("archive"),
    trash: () => change("trash"),
    "toggle-read": () => toggle((row) => row.classList.contains("unread"), "unread", "read"),
    "toggle-flag": () => toggle((row) => row.querySelector(".flagged"), "flag", "unflag"),
    reply: () => compose("reply"),
    "reply-all": () => compose("all=yes&reply"),
    forward: () => compose("forward"),
  };
  return {isShown, refresh: () => quietly(refresh()), actions};
})();

// Live: one stream of events for all windows of this browser; each fetches its page again.
const live = (() => {
  const QUICK_MS = 900, HIDDEN_MS = 10000, POLL_MS = 30000, LONGEST_MS = 60000;
  const channel = "BroadcastChannel" in window ? new BroadcastChannel("postroom") : null;
  const mode = document.body.dataset.live;
  let due, last = 0, wait = 1000;

  // Pages opt in: the elements with data-live and an id are fetched again.
  async function refresh() {
    last = Date.now();
    if (mail.isShown()) return mail.refresh();
    const parts = [...document.querySelectorAll("main [data-live][id]")].map((element) => element.id);
    const {page, response} = await pages.get(parts.length ? location.href : "/sessions");
    if (!response.ok) return;
    for (const id of parts) await pages.morph(page, id);
    await pages.showHeld(page);
  }

  function soon() {
    const pause = last + (document.hidden ? HIDDEN_MS : QUICK_MS) - Date.now();
    due ??= setTimeout(async () => {
      due = null;
      await refresh().catch(console.error);
    }, Math.max(pause, 100));
  }

  function hear(event) {
    document.dispatchEvent(new CustomEvent("postroom:event", {detail: event}));
    soon();
  }

  // Tell the other windows.
  const tell = (event) => channel?.postMessage(event);

  function listen() {
    const source = new EventSource("/live");
    source.onopen = () => { if (last) soon(); wait = 1000; };
    source.onmessage = ({data}) => {
      const event = JSON.parse(data);
      hear(event);
      tell(event);
    };
    const retry = async () => {
      source.close();
      await pages.get("/sessions").catch(() => {});
      setTimeout(listen, wait);
      wait = Math.min(wait * 2, LONGEST_MS);
    };
    source.addEventListener("end", () => { tell({type: "end"}); retry(); });
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) retry(); };
  }

  if (!mode) return {tell};
  channel?.addEventListener("message", ({data}) => hear(data));
  document.addEventListener("visibilitychange", () => { if (!document.hidden) { clearTimeout(due); due = null; soon(); } });
  if (mode === "poll") setInterval(soon, POLL_MS);
  // A browser has six connections to a server: only one window holds a stream.
  else if (navigator.locks) navigator.locks.request("postroom live", () => new Promise(listen));
  else listen();
  return {tell};
})();

// Keyboard: the table of keys is the help dialog of the page.
(() => {
  const help = byId("keyboard"), isOn = byId("keyboard-on");
  if (!help) return;
  const OFF = "postroom keyboard off", PAUSE_MS = 1500;
  const keys = new Map();
  for (const row of help.querySelectorAll("[data-action]")) {
    for (const key of row.dataset.keys.split(",")) if (row.dataset.action) keys.set(key, row.dataset.action);
  }
  const actions = {
    help: () => (help.open ? help.close() : help.showModal()),
    undo: () => toast.undo(),
    compose: () => document.querySelector('a[href="/compose"]')?.click(),
    ...mail.actions,
  };
  const run = (action) => (action.startsWith("/") ? location.assign(action) : actions[action]?.());
  let first = "";

  function press(event) {
    const {key, target} = event;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (target.closest("textarea, select, [contenteditable], input:not([type=checkbox])")) {
      if (key === "Escape" && target.id === "q") mail.actions.return();
      return;
    }
    if (!isOn.checked || (help.open && key !== "?")) return;
    if (key.startsWith("Arrow") && !target.closest(".mail-row")) return;
    const action = keys.get(first ? `${first} ${key}` : key);
    const begins = !first && [...keys.keys()].some((one) => one.startsWith(`${key} `));
    first = begins ? key : "";
    if (begins) setTimeout(() => { first = ""; }, PAUSE_MS);
    if (action || begins) event.preventDefault();
    if (action) run(action);
  }

  isOn.checked = localStorage.getItem(OFF) === null;
  isOn.addEventListener("change", () => (isOn.checked ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "1")));
  document.addEventListener("keydown", press);
  document.addEventListener("click", (event) => {
    const action = event.target.closest("button[data-action]")?.dataset.action;
    if (action) run(action);
  });
})();

// The editor of a rule: line numbers, marks of lines with problems, completion.
(() => {
  const field = (target) => target instanceof Element && target.matches("textarea[data-words]") ? target : null;
  const box = () => document.getElementById("completions");
  const clean = (part) => part.replace(/^[\s-]*/, "");
  const keyOf = (part) => (/^([\w.-]+):(\s|$)/.exec(clean(part)) || [])[1];

  function drawLines(area) {
    const count = Math.max(area.value.split("\n").length + 2, 14);
    const marks = {};
    for (const item of document.querySelectorAll("#problems li[data-line]")) {
      marks[item.dataset.line] ||= item.classList.contains("bad") ? "error" : "warning";
    }
    const lines = area.parentElement.querySelector(".lines");
    lines.replaceChildren();
    for (let number = 1; number <= count; number += 1) {
      const span = document.createElement("span");
      span.className = marks[number] || "";
      span.textContent = number;
      lines.append(span, "\n");
    }
    area.rows = count;
  }

  // The keys around the cursor, from the outermost: of the lines above, then of the brackets.
  function around(text) {
    const lines = text.split("\n"), line = lines.pop(), chain = [];
    let indent = /^[\s-]*/.exec(line)[0].length;
    for (const above of lines.reverse()) {
      const depth = /^[\s-]*/.exec(above)[0].length;
      if (clean(above) && depth < indent && /:\s*$/.test(above)) chain.unshift(keyOf(above));
      if (clean(above)) indent = Math.min(indent, depth);
    }
    let part = "", inList = false;
    const open = [];
    for (const char of line) {
      if (char === "{" || char === "[") {
        open.push([keyOf(part), inList]);
        inList = char === "[";
        part = "";
      } else if (char === "}" || char === "]") {
        inList = (open.pop() || [0, false])[1];
        part = "";
      } else part = char === "," ? "" : part + char;
    }
    return { chain: [...chain, ...open.map(([key]) => key)].filter(Boolean), part: clean(part), inList };
  }

  // What may stand at the end of a text: [word that is typed, suggestions, what follows a name].
  function suggest(text, words) {
    const { chain, part, inList } = around(text);
    const name = chain.at(-1), key = keyOf(part);
    const sortOf = (one) => words.fields[one && one.startsWith("header.") ? "header.X" : one];
    const about = [...chain, key].filter((one) => sortOf(one)).at(-1);
    const isAction = ["then", "actions"].includes(chain[0]);
    const values = (one) => words.values[one] || [];
    if (key) {
      const typed = part.slice(key.length + 1).trimStart().replace(/^"/, "");
      return [typed, isAction || !about ? values(key) : key === "exists" ? values(key) : values(about), null];
    }
    if (inList && about && !isAction) return [part.replace(/^"/, ""), values(about), null];
    if (!name) return [part, words.keys, ": "];
    if (name === "safety") return [part, words.safety, ": "];
    if (isAction) return [part, Object.keys(words.actions), (one) => (words.actions[one] ? ": " : "")];
    if (about) return [part, [...words.operators[sortOf(about)], "not"], ": "];
    return [part, [...Object.keys(words.fields), ...words.groups], ": "];
  }

  function close() {
    if (!box() || box().hidden) return;
    box().hidden = true;
    box().replaceChildren();
    document.querySelector("textarea[data-words]")?.removeAttribute("aria-activedescendant");
  }

  function show(area, isAsked) {
    close();
    if (area.readOnly || area.selectionStart !== area.selectionEnd) return;
    const before = area.value.slice(0, area.selectionStart);
    const [typed, all, after] = suggest(before, JSON.parse(area.dataset.words));
    const low = typed.toLowerCase();
    const found = all.filter((one) => one.toLowerCase().startsWith(low));
    found.push(...all.filter((one) => !found.includes(one) && one.toLowerCase().includes(low)));
    if (!found.length || (!typed && !isAsked) || found.includes(typed)) return;
    for (const [at, text] of found.slice(0, 8).entries()) {
      const item = document.createElement("li");
      Object.assign(item, { id: `completion-${at}`, role: "option", textContent: text });
      item.dataset.after = after === null ? "" : typeof after === "function" ? after(text) : after;
      item.dataset.typed = typed.length;
      item.dataset.quoted = after === null && !/^[\p{L}\p{N}_][\p{L}\p{N}_@./+ -]*$/u.test(text) ? "yes" : "";
      box().append(item);
    }
    const style = getComputedStyle(area), height = parseFloat(style.lineHeight);
    const line = before.split("\n").length, column = before.length - before.lastIndexOf("\n") - 1;
    const left = area.offsetLeft + column * parseFloat(style.fontSize) * 0.6 - area.scrollLeft;
    box().style.top = `${line * height + parseFloat(style.paddingTop) + 4}px`;
    box().style.left = `${Math.max(0, Math.min(left, area.parentElement.clientWidth - 180))}px`;
    box().hidden = false;
    select(area, 0);
  }

  function select(area, at) {
    const items = [...box().children], chosen = items[(at + items.length) % items.length];
    for (const item of items) item.setAttribute("aria-selected", item === chosen);
    area.setAttribute("aria-activedescendant", chosen.id);
  }

  const selected = () => [...box().children].findIndex((item) => item.getAttribute("aria-selected") === "true");

  function insert(area, text, removed = 0) {
    area.setSelectionRange(area.selectionStart - removed, area.selectionEnd);
    // This keeps the browser's own undo; setRangeText does not.
    if (!document.execCommand("insertText", false, text)) area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
  }

  function accept(area, item) {
    const { after, typed, quoted } = item.dataset, text = item.textContent;
    const start = area.selectionStart - Number(typed), isOpen = area.value[start - 1] === '"';
    close();
    insert(area, quoted && !isOpen ? JSON.stringify(text) : text + after, Number(typed));
    close();
  }

  document.addEventListener("input", (event) => {
    const area = field(event.target);
    if (!area) return;
    drawLines(area);
    show(area, false);
  });

  document.addEventListener("keydown", (event) => {
    const area = field(event.target);
    if (!area || !box()) return;
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      show(area, true);
    } else if (!box().hidden && !event.shiftKey && ["ArrowDown", "ArrowUp", "Enter", "Tab", "Escape"].includes(event.key)) {
      event.preventDefault();
      event.stopPropagation();
      if (event.key === "Escape") close();
      else if (event.key.startsWith("Arrow")) select(area, selected() + (event.key === "ArrowDown" ? 1 : -1));
      else accept(area, box().children[selected()]);
    } else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey && !event.isComposing && !area.readOnly) {
      event.preventDefault();
      const line = area.value.slice(0, area.selectionStart).split("\n").pop();
      insert(area, `\n${/^\s*/.exec(line)[0]}`);
    }
  });

  document.addEventListener("mousedown", (event) => {
    const item = event.target.closest?.("#completions li"), area = document.querySelector("textarea[data-words]");
    if (!item) return;
    event.preventDefault();
    accept(area, item);
  });

  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("#problems a[data-line]"), area = document.querySelector("textarea[data-words]");
    if (!link || !area) return;
    event.preventDefault();
    const lines = area.value.split("\n"), line = Number(link.dataset.line) - 1;
    const start = lines.slice(0, line).reduce((sum, one) => sum + one.length + 1, 0);
    area.focus();
    area.setSelectionRange(Math.min(start + Number(link.dataset.column) - 1, area.value.length), start + (lines[line] || "").length);
  });

  document.getElementById("keys")?.removeAttribute("hidden");
  document.addEventListener("focusout", (event) => { if (field(event.target)) close(); });
  document.addEventListener("htmx:after:swap", () => {
    const area = document.querySelector("textarea[data-words]");
    if (area) drawLines(area);
  });
})();

// Times to choose: the field holds the time of the reader, and the form sends UTC.
(() => {
  const pad = (number) => String(number).padStart(2, "0");
  const local = (at) => `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}T${pad(at.getHours())}:${pad(at.getMinutes())}`;
  const field = document.getElementById("send_at");
  if (!field) return;
  const sent = document.createElement("input");
  sent.type = "hidden";
  sent.name = field.name;
  field.removeAttribute("name");
  field.after(sent);
  const convert = () => {
    const at = field.value ? new Date(field.value) : null;
    sent.value = at && !isNaN(at) ? at.toISOString().slice(0, 16) : "";
  };
  if (field.value) field.value = local(new Date(`${field.value}Z`));
  convert();
  field.addEventListener("input", convert);
  document.getElementById("zone").textContent = `in ${Intl.DateTimeFormat().resolvedOptions().timeZone}, where you are`;
})();

// Writing: drafts that save themselves, files by drag and drop, keys.
(() => {
  const form = document.getElementById("editor");
  if (!form) return;
  const IDLE_MS = 1000, BETWEEN_MS = 2500;
  const {draft, query} = form.dataset;
  const canSave = "save" in form.dataset;
  const files = document.getElementById("files"), state = document.getElementById("draft-state");
  const backup = `postroom draft ${draft}`;
  const texts = () => [...form.querySelectorAll("textarea, select, input:not([type=hidden]):not([type=file]):not([type=checkbox])")];
  let timer, saving = null, isDirty = false, savedAt = 0, isLeaving = false, before = [];

  const say = (words) => { state.textContent = words; };
  const clock = () => new Date().toLocaleTimeString([], {hour: "2-digit", minute: "2-digit", hourCycle: "h23"});
  const size = (bytes) => (bytes < 1024 ? `${bytes} bytes` : bytes < 1048576 ? `${(bytes / 1024).toFixed(1)} KB` : `${(bytes / 1048576).toFixed(1)} MB`);

  // What is typed and not saved yet stays in this window, whatever happens to the session.
  function keep() {
    const typed = Object.fromEntries(texts().map((field) => [field.id, field.value]));
    try { sessionStorage.setItem(backup, JSON.stringify(typed)); } catch { /* it is full or off */ }
  }

  function restore() {
    const kept = sessionStorage.getItem(backup);
    if (!kept) return;
    const typed = JSON.parse(kept);
    const changed = texts().filter((field) => field.id in typed && typed[field.id] !== field.value);
    for (const field of changed) {
      field.value = typed[field.id];
      field.closest("details")?.setAttribute("open", "");
      field.dispatchEvent(new Event("input", {bubbles: true}));
    }
    if (changed.length) say("Your unsaved text was restored.");
  }

  function address(isSaved) {
    const path = isSaved ? `/drafts/${draft}` : `/compose?draft=${draft}${query ? `&${query}` : ""}`;
    history.replaceState(history.state, "", path);
  }

  // The draft on the server; one request at a time, so that there is one draft.
  function save(more = {}) {
    clearTimeout(timer);
    if (!canSave) return Promise.resolve(false);
    const run = (saving ?? Promise.resolve()).then(() => post(more)).finally(() => {
      savedAt = Date.now();
      if (saving === run) saving = null;
    });
    saving = run;
    return run;
  }

  async function post(more) {
    const data = new FormData(form), chosen = files.files;
    Object.entries({do: "draft", ...more}).forEach(([name, value]) => data.set(name, value));
    isDirty = false;
    say(chosen.length ? "Uploading…" : "Saving…");
    try {
      const response = await fetch(form.action, {method: "POST", body: data});
      if (new URL(response.url).pathname === "/signin" || response.status === 401) return signedOut();
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      if (!response.ok) return refused(page, chosen.length);
      saved(page, chosen);
      return true;
    } catch {
      isDirty = true;
      say("Not saved: the server does not respond. Your text stays in this window.");
      return false;
    }
  }

  function saved(page, chosen) {
    if (files.files === chosen) files.value = "";
    const shown = document.getElementById("draft-files"), fresh = page.getElementById("draft-files");
    if (fresh && !shown.isEqualNode(fresh)) shown.replaceWith(document.adoptNode(fresh));
    form.querySelector(".discard")?.removeAttribute("hidden");
    if (!isDirty) sessionStorage.removeItem(backup);
    listFiles();
    address(true);
    say(`Saved ${clock()}`);
  }

  function refused(page, hadFiles) {
    isDirty = true;
    const why = page.querySelector(".notice.bad")?.textContent.trim() || "the server refused it";
    say(`Not saved: ${why}`);
    if (hadFiles) fileError(why);
    return false;
  }

  function signedOut() {
    isDirty = true;
    keep();
    const here = location.pathname + location.search, link = document.createElement("a");
    link.href = `/signin?next=${encodeURIComponent(here)}`;
    link.textContent = "sign in again";
    state.replaceChildren("Not saved: you are signed out. Your text stays in this window; ", link, ".");
    return false;
  }

  function changed() {
    isDirty = true;
    keep();
    clearTimeout(timer);
    timer = setTimeout(save, Math.max(IDLE_MS, savedAt + BETWEEN_MS - Date.now()));
  }

  // Files: the list of those that are chosen, checked against the limits of the server.
  const fileError = (words) => {
    const place = document.getElementById("file-error");
    place.textContent = words;
    place.hidden = !words;
  };

  function choose(list) {
    const transfer = new DataTransfer();
    list.forEach((file) => transfer.items.add(file));
    files.files = transfer.files;
    listFiles();
  }

  function listFiles() {
    const place = document.getElementById("new-files");
    place.replaceChildren(...[...files.files].map((file, at) => {
      const row = document.createElement("li"), name = document.createElement("span"), hint = document.createElement("span");
      const button = document.createElement("button");
      name.className = "filename";
      name.textContent = file.name;
      hint.className = "hint";
      hint.textContent = `${size(file.size)}${canSave ? ", not saved yet" : ""}`;
      button.type = "button";
      button.className = "quiet small";
      button.textContent = "Remove";
      button.ariaLabel = `Remove ${file.name}`;
      button.addEventListener("click", () => choose([...files.files].filter((_, other) => other !== at)));
      row.append(name, " ", hint, " ", button);
      return row;
    }));
    place.hidden = !files.files.length;
  }

  function add(list) {
    const stored = [...document.querySelectorAll("#draft-files li:not(:has(input:not(:checked)))")];
    const all = [...list], most = Number(form.dataset.mostFiles), bytes = Number(form.dataset.mostBytes);
    const total = [...stored.map((row) => Number(row.dataset.size)), ...all.map((file) => file.size)].reduce((a, b) => a + b, 0);
    if (stored.length + all.length > most) return void reject(`choose at most ${most} files for one message`);
    if (total > bytes) return void reject(`the attachments have ${total} bytes together; the limit is ${bytes}`);
    fileError("");
    choose(all);
    if (canSave && all.length) save();
  }

  function reject(words) {
    choose(before);
    fileError(words);
  }

  files.addEventListener("click", () => { before = [...files.files]; });
  files.addEventListener("change", () => add([...before, ...files.files]));
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    form.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) form.classList.remove("dropping"); });
  document.addEventListener("drop", (event) => {
    form.classList.remove("dropping");
    if (!hasFiles(event)) return;
    event.preventDefault();
    before = [...files.files];
    add([...before, ...event.dataTransfer.files]);
  });
  form.querySelector(".with-script").hidden = false;

  // A mail is sent once, after it was saved: if the session has ended, its text stays here.
  form.addEventListener("submit", async (event) => {
    const button = event.submitter, isDiscarded = button?.value === "discard";
    if (isLeaving) return void event.preventDefault();
    if (button?.name === "remove" || button?.value === "draft") {
      event.preventDefault();
      return void save(button.name === "remove" ? {remove: button.value} : {});
    }
    clearTimeout(timer);
    if (canSave && (saving || (isDirty && !isDiscarded))) {
      event.preventDefault();
      isLeaving = true;
      const isSaved = await (isDirty && !isDiscarded ? save() : saving);
      isLeaving = false;
      if (isSaved || isDiscarded) form.requestSubmit(button);
      return;
    }
    isLeaving = true;
    sessionStorage.removeItem(backup);
  });
  addEventListener("pageshow", (event) => { if (event.persisted) isLeaving = false; });

  document.addEventListener("keydown", async (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit(form.querySelector("button[name=do][value=send]"));
    } else if (event.key === "Enter" && event.target.id === "subject") {
      event.preventDefault();
      form.querySelector(".body").focus();
    } else if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
      event.preventDefault();
      if (isDirty && canSave && !(await save())) return;
      location.assign(document.querySelector("[data-back]").href);
    }
  });

  document.getElementById("quote")?.addEventListener("click", (event) => {
    event.preventDefault();
    const body = document.getElementById("body"), title = document.getElementById("original").textContent.trim().replace(/\s+/g, " ");
    const lines = document.getElementById("quoted").textContent.trimEnd().split("\n").map((line) => `> ${line}`.trimEnd());
    body.value = `${body.value.trimEnd()}\n\n${title}:\n${lines.join("\n")}\n`;
    body.focus();
    body.setSelectionRange(0, 0);
    body.dispatchEvent(new Event("input", {bubbles: true}));
  });

  if (!state.closest("main").querySelector(".notice[role=alert]")) address(location.pathname.startsWith("/drafts/"));
  form.addEventListener("input", (event) => { if (event.target !== files) changed(); });
  restore();
  document.addEventListener("visibilitychange", () => { if (document.hidden && isDirty) save(); });
})();

// Recipients: addresses that the inbox knows, as they are typed.
(() => {
  const fields = document.querySelectorAll("[data-recipients]");
  let list = null, pending = new AbortController(), timer;

  const start = (field) => Math.max(...[",", ";", "\n"].map((mark) => field.value.lastIndexOf(mark, field.selectionStart - 1))) + 1;
  const token = (field) => field.value.slice(start(field), field.selectionStart).trim();

  function close(field) {
    list?.remove();
    list = null;
    field.removeAttribute("aria-controls");
    field.removeAttribute("aria-activedescendant");
  }

  function show(field, people) {
    close(field);
    if (!people.length) return;
    list = document.createElement("ul");
    list.className = "suggestions";
    list.id = `${field.id}-people`;
    list.role = "listbox";
    list.ariaLabel = "People you know";
    people.forEach((address, at) => {
      const option = document.createElement("li");
      option.role = "option";
      option.id = `${list.id}-${at}`;
      option.textContent = address;
      option.addEventListener("pointerdown", (event) => { event.preventDefault(); take(field, address); });
      list.append(option);
    });
    field.after(list);
    field.setAttribute("aria-controls", list.id);
    mark(field, 0);
  }

  const marked = () => list?.querySelector("[aria-selected=true]");
  function mark(field, at) {
    const options = [...list.children];
    options.forEach((option, number) => option.setAttribute("aria-selected", String(number === at)));
    field.setAttribute("aria-activedescendant", options[at].id);
  }

  function take(field, address) {
    const from = start(field), before = field.value.slice(0, from), after = field.value.slice(field.selectionStart);
    field.value = `${before}${from ? " " : ""}${address}, ${after.trimStart()}`;
    field.setSelectionRange(from + address.length + (from ? 3 : 2), from + address.length + (from ? 3 : 2));
    close(field);
    field.dispatchEvent(new Event("input", {bubbles: true}));
  }

  async function look(field) {
    const typed = token(field);
    pending.abort();
    pending = new AbortController();
    if (typed.length < 1 || /\s/.test(typed)) return close(field);
    try {
      const query = new URLSearchParams({q: typed, from: field.form.elements.from?.value ?? ""});
      const response = await fetch(`/compose/people?${query}`, {signal: pending.signal});
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      const people = [...page.querySelectorAll("#people li")].map((one) => one.textContent);
      if (document.activeElement === field) show(field, people.filter((one) => one !== typed));
    } catch (error) { if (error.name !== "AbortError") close(field); }
  }

  for (const field of fields) {
    field.setAttribute("aria-autocomplete", "list");
    field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => look(field), 120); });
    field.addEventListener("blur", () => { pending.abort(); close(field); });
    field.addEventListener("keydown", (event) => {
      if (!list) {
        if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) event.preventDefault();
        return;
      }
      const options = [...list.children], at = options.indexOf(marked());
      const steps = {ArrowDown: 1, ArrowUp: -1};
      if (event.key in steps) mark(field, (at + steps[event.key] + options.length) % options.length);
      else if ((event.key === "Enter" || event.key === "Tab") && !event.ctrlKey) take(field, marked().textContent);
      else if (event.key === "Escape") close(field);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }
})();

// Outgoing mail: keys to move between held mails and to decide; no key decides by itself.
(() => {
  const isList = document.getElementById("outgoing"), bar = document.querySelector(".decide");
  if (!isList && !bar) return;
  let last = "";

  function move(step) {
    const link = document.querySelector(`.pager [rel=${step > 0 ? "next" : "prev"}]`);
    if (!isList) return void link?.click();
    const rows = [...document.querySelectorAll(".outbox .row")], at = rows.indexOf(document.activeElement);
    rows[Math.min(Math.max(at + step, 0), rows.length - 1)]?.focus();
  }

  function reject() {
    const details = document.querySelector(".rejecting");
    if (!details) return;
    details.open = true;
    details.querySelector("[name=note]").focus();
  }

  const keys = {
    j: () => move(1),
    k: () => move(-1),
    y: () => bar?.querySelector("[data-key=y]")?.focus(),
    n: reject,
    e: () => bar?.querySelector("[data-key=e]")?.click(),
    Escape: () => document.querySelector("[data-back]")?.click(),
  };
  document.addEventListener("keydown", (event) => {
    const before = last;
    last = event.key;
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || !Object.hasOwn(keys, event.key)) return;
    if (before === "g" || document.querySelector("dialog[open]") || localStorage.getItem("postroom keyboard off") !== null) return;
    if (event.target.closest("textarea, select, input")) {
      if (event.key !== "Escape") return;
      event.target.closest("details")?.removeAttribute("open");
      event.target.blur();
    } else keys[event.key]();
    event.preventDefault();
    event.stopImmediatePropagation();
  }, true);
})();

// Events: the list follows what happens until it is paused. Elements with data-live are kept current.
(() => {
  const list = document.getElementById("events"), button = document.getElementById("pause-events");
  if (!list || !button) return;
  button.hidden = false;
  button.addEventListener("click", () => {
    const isLive = list.toggleAttribute("data-live");
    button.textContent = isLive ? "Pause" : "Resume";
    if (isLive) location.reload();
  });
})();

// Memories, accounts, keys, webhooks and connect
{
  // Buttons that copy the text of an element; without a clipboard, they select it.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.(".copy");
    if (!button) return;
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });

  // A sign-in that is asked about goes on to the account when it is done.
  document.addEventListener("htmx:before:swap", (event) => {
    const { sourceElement, response } = event.detail.ctx;
    if (sourceElement?.id !== "poll" || !response.raw.redirected) return;
    event.preventDefault();
    location.assign(response.raw.url);
  });
}
