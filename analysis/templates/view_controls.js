// What the reader can do: the list of samples, search, knobs, keys, deep links. view.js draws what comes of it.
"use strict";

const MODES = ["confidence", "mask", "window"];

function drawSamples() {
  state.order = data.samples.map((_, i) => i);
  const by = $("order").value;
  if (by !== "file") state.order.sort((a, b) => (data.samples[b][by] ?? -1) - (data.samples[a][by] ?? -1) || a - b);
  $("samples").replaceChildren(...state.order.map((index) => {
    const sample = data.samples[index], weight = sample.weight === null ? "" : ` · w ${number(sample.weight, 3)}`;
    const button = element("button", { type: "button", "data-index": index }, sample.source_id || sample.sample_id.slice(0, 12),
      element("small", {}, `${sample.tokens} tokens${weight}`));
    if (index === state.sample) button.setAttribute("aria-current", "true");
    return element("li", {}, button);
  }));
}

function step(by) {
  const at = state.order.indexOf(state.sample) + by;
  if (at >= 0 && at < state.order.length) open(state.order[at]);
}

// Search. `found.all`: first and last token of each match in this sample; `found.samples`: where else there are some.
function search() {
  const text = $("search").value;
  const pattern = text ? new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi") : null;
  found = { all: [], tokens: new Set(), samples: new Set() };
  if (pattern) {
    data.samples.forEach((sample, i) => { if (sample.response.search(pattern) >= 0) found.samples.add(i); });
    let t = 0;
    for (const { index, 0: match } of current().response.matchAll(pattern)) {
      while (t < columns.length && columns.end[t] <= index) t++;
      let last = t;
      while (last < columns.length && columns.start[last] < index + match.length) {
        if (columns.end[last] > index) found.tokens.add(last);
        last++;
      }
      if (last > t) found.all.push(t);
    }
    const others = found.samples.size - (found.samples.has(state.sample) ? 1 : 0);
    $("found").textContent = `${found.all.length} here; in ${others} other samples`;
  } else $("found").textContent = "";
  $("samples").querySelectorAll("button").forEach((b) => b.classList.toggle("match", found.samples.has(Number(b.dataset.index))));
  spans.forEach((span, t) => span.classList.toggle("hit", found.tokens.has(t)));
}

async function nextMatch(by) {
  if (!found.samples || !found.samples.size) return;
  const here = by > 0 ? found.all.find((t) => t > state.at) : found.all.findLast((t) => t < state.at);
  if (here !== undefined) { goTo(here, false); return; }
  const n = state.order.length;
  let at = state.order.indexOf(state.sample);
  do at = (at + by + n) % n; while (!found.samples.has(state.order[at]));
  if (state.order[at] !== state.sample) await open(state.order[at]);
  if (found.all.length) goTo(by > 0 ? found.all[0] : found.all.at(-1), false);
}

// The knobs: a slider for the hand, a field for the exact value.
function setKnob(name, value) {
  if (!Number.isFinite(value) || value < 0) return;
  state.knobs[name] = name === "tau" ? Math.min(value, 1) : name === "window" ? Math.max(1, Math.round(value)) : value;
  showKnobs(name);
  hideCard();
  recolour();
}
function showKnobs(...names) {
  for (const name of names) {
    const range = $(`${name}-range`), value = state.knobs[name];
    if (value > Number(range.max)) range.max = value;
    range.value = value;
    if (Number($(name).value) !== value || $(name).value === "") $(name).value = value;
  }
}

// The token on the line above (-1) or below (1) that stands nearest to the one we are at.
function neighbourLine(by) {
  const here = spans[state.at].getBoundingClientRect();
  let line = null, best = state.at, gap = Infinity;
  for (let t = state.at + by; t >= 0 && t < spans.length; t += by) {
    const place = spans[t].getClientRects()[0];
    if (!place || Math.abs(place.top - here.top) < 6) continue;
    if (line === null) line = place.top;
    if (Math.abs(place.top - line) >= 6) break;
    const apart = Math.abs(place.left - here.left);
    if (apart < gap) { gap = apart; best = t; }
  }
  return best;
}

function setMode(mode) {
  state.mode = mode;
  document.querySelector(`input[name="mode"][value="${mode}"]`).checked = true;
  recolour();
}
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  if (columns) drawMap();
}
const toLowest = () => { if (windows && windows.lowest) goTo(windows.lowest.centre, true); };
const otherTheme = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");

const MOVES = {
  ArrowRight: () => state.at + 1, ArrowLeft: () => state.at - 1, Home: () => 0, End: () => spans.length - 1,
  ArrowDown: () => (state.at < 0 ? 0 : neighbourLine(1)), ArrowUp: () => (state.at < 0 ? 0 : neighbourLine(-1)),
};
const KEYS = {
  n: () => step(1), p: () => step(-1), w: toLowest, d: otherTheme, "?": () => $("help").showModal(),
  m: () => data.scored && setMode(MODES[(MODES.indexOf(state.mode) + 1) % MODES.length]),
  "/": () => { $("search").focus(); $("search").select(); }, Escape: hideCard,
};

function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || $("help").open) return;
  if (event.target.id === "search") {
    if (event.key === "Enter") { event.preventDefault(); nextMatch(event.shiftKey ? -1 : 1); }
    if (event.key === "Escape") { event.target.value = ""; search(); $("code").focus(); }
    return;
  }
  const typing = event.target.matches("input:not([type=checkbox]), select");
  const inCode = event.target === $("code") || event.target === document.body;
  const move = inCode && MOVES[event.key], key = !typing && KEYS[event.key];
  if (move && columns) { event.preventDefault(); goTo(move(), true); }
  else if (key && columns) { event.preventDefault(); key(); }
}

// #sample_id&token; the beginning of an id will do.
function follow() {
  const [id, at] = location.hash.slice(1).split("&");
  const index = id ? data.samples.findIndex((s) => s.sample_id.startsWith(id)) : 0;
  const unknown = index < 0;
  if (unknown) notice(`This file holds no sample ${id.slice(0, 64)}; it shows the first one.`);
  return open(unknown ? 0 : index, /^\d+$/.test(at ?? "") && !unknown ? Number(at) : -1);
}
function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = false;
}

function listen() {
  const code = $("code"), position = (event) => event.target.closest(".t")?.dataset.pos;
  code.addEventListener("mouseover", (event) => { const t = position(event); if (t !== undefined) showCard(Number(t)); });
  code.addEventListener("mouseleave", hideCard);
  code.addEventListener("click", (event) => { const t = position(event); if (t !== undefined) goTo(Number(t), true); });
  document.querySelector("main").addEventListener("scroll", moveCard);
  $("mini").addEventListener("click", (event) => goTo(Math.floor(((event.offsetX - 24) / ($("mini").clientWidth - 26)) * columns.length), false));
  $("samples").addEventListener("click", (event) => { const b = event.target.closest("button"); if (b) open(Number(b.dataset.index)); });
  $("order").addEventListener("change", () => { drawSamples(); search(); });
  $("search").addEventListener("input", search);
  $("legend").addEventListener("change", (event) => {
    const category = Number(event.target.value);
    if (event.target.checked) state.only.add(category); else state.only.delete(category);
    recolour();
  });
  $("all").addEventListener("click", () => { state.only.clear(); drawLegend(); recolour(); });
  for (const name of Object.keys(asBuilt)) {
    $(`${name}-range`).addEventListener("input", (event) => setKnob(name, Number(event.target.value)));
    $(name).addEventListener("input", (event) => { if (event.target.value !== "") setKnob(name, Number(event.target.value)); });
    $(name).addEventListener("change", () => showKnobs(name));
  }
  $("reset").addEventListener("click", () => { state.knobs = { ...asBuilt }; showKnobs(...Object.keys(asBuilt)); recolour(); });
  $("modes").addEventListener("change", (event) => setMode(event.target.value));
  const click = { previous: () => step(-1), next: () => step(1), lowest: toLowest, theme: otherTheme, "help-button": KEYS["?"] };
  for (const [id, act] of Object.entries(click)) $(id).addEventListener("click", act);
  document.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", follow);
  let theme;  // paper is white
  window.addEventListener("beforeprint", () => { theme = document.documentElement.dataset.theme; setTheme("light"); });
  window.addEventListener("afterprint", () => setTheme(theme));
  window.addEventListener("resize", () => { if (columns) drawMap(); });
}

function start() {
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  $("title").textContent = data.dataset;
  const part = data.samples.length < data.total ? `${data.samples.length} of ${data.total} samples` : `${data.total} samples`;
  const scope = { all: "the whole answer", code: "the tokens of code", cuda: "kernels and launches" }[data.options.region_scope];
  $("about").textContent = `${part} · ${data.scored ? `${data.dataset === data.model ? "" : `${data.model} · `}windows over ${scope}` : "labels"}`;
  if (!data.scored) {
    document.querySelectorAll(".scored").forEach((part) => { part.hidden = true; });
    notice("Scores are missing: this dataset was built with --skip-scoring. Categories, statements and locations are shown; there is no confidence, mask or weight.");
  }
  showKnobs(...Object.keys(asBuilt));
  drawSamples();
  listen();
  follow();
}

start();
