// The page: it draws a sample and follows the reader. Figures come from view_model.js. Texts of the corpus become text
// nodes or attributes, never markup.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const table = confidenceTable(data);
const $ = (id) => document.getElementById(id);
const asBuilt = { tau: data.options.tau, lambda: data.options.lambda, window: data.options.window };
const state = { sample: -1, at: -1, mode: "confidence", knobs: { ...asBuilt }, only: new Set(), order: [] };
let carded = -1;  // the token that the card is about
let columns = null, mask = null, windows = null, spans = [], found = [];

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
const percent = (part, whole) => (whole ? `${(100 * part / whole).toFixed(1)} %` : "–");
const number = (value, digits = 4) => (Number.isFinite(value) ? value.toFixed(digits) : "–");
const words = (name) => name.replaceAll("_", " ");
const current = () => data.samples[state.sample];

// Characters that show nothing, or turn the direction of a text, are spelled out; so are line ends, for their colour.
const SIGNS = /(\n|[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff])/u;
function textNodes(text) {
  return text.split(SIGNS).filter(Boolean).flatMap((part) => {
    if (!SIGNS.test(part)) return [part];
    const sign = part === "\n" ? "↵" : `U+${part.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
    const mark = element("b", { "data-sign": sign });
    return part === "\n" ? [mark, part] : [mark];
  });
}
const spelled = (text) => text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll(" ", "␣").split(SIGNS)
  .map((p) => (SIGNS.test(p) ? `U+${p.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}` : p)).join("");

async function open(index, at = -1) {
  state.sample = index;
  const sample = current(), decoded = await decodeSample(sample, table);
  if (state.sample !== index) return;  // the reader went on meanwhile
  columns = decoded;
  state.at = -1;
  $("name").textContent = sample.source_id || sample.sample_id;
  $("facts").textContent = [sample.sample_id, sample.source, sample.license, `${sample.tokens} tokens`].filter(Boolean).join(" · ");
  $("prompt").textContent = sample.prompt;
  hideCard();
  drawCode(sample);
  recolour();
  drawLegend();
  search();
  const button = [...$("samples").querySelectorAll("button")].find((b) => Number(b.dataset.index) === index);
  $("samples").querySelectorAll("[aria-current]").forEach((b) => b.removeAttribute("aria-current"));
  if (button) { button.setAttribute("aria-current", "true"); button.scrollIntoView({ block: "nearest" }); }
  if (at >= 0 && at < columns.length) goTo(at, true);
  else { document.querySelector("main").scrollTop = 0; link(); }
}

function drawCode(sample) {
  const nodes = [];
  let at = 0;
  spans = [];
  for (let t = 0; t < columns.length; t++) {
    const start = columns.start[t], span = element("span", { class: `t g${columns.category[t]}`, "data-pos": t });
    if (start > at) nodes.push(element("s", {}, ...textNodes(sample.response.slice(at, start))));
    if (start < 0) span.append(element("b", { "data-sign": "⟨template⟩" }));
    else if (columns.end[t] <= at) span.append(element("b", { "data-sign": "·" }));  // more bytes of a character
    else {
      span.append(...textNodes(sample.response.slice(Math.max(start, at), columns.end[t])));
      at = columns.end[t];
    }
    spans.push(span);
    nodes.push(span);
  }
  if (at < sample.response.length) nodes.push(element("s", {}, ...textNodes(sample.response.slice(at))));
  $("code").replaceChildren(...nodes);
}

// Everything that depends on tau, lambda, l, the background and the chosen categories.
function recolour() {
  $("code").dataset.mode = $("scale").dataset.mode = state.mode;
  mask = windows = null;
  if (columns.logprob) {
    mask = maskOf(columns, state.knobs.tau, state.knobs.lambda);
    windows = windowsOf(columns, state.knobs.window, data.options.region_scope);
  }
  const lowest = windows && windows.lowest, [bottom, top] = scaleEnds();
  for (let t = 0; t < columns.length; t++) {
    let name = `t g${columns.category[t]}`;
    if (mask) {
      const value = state.mode === "window" ? windows.means[t] : columns.confidence[t];
      const level = Number.isNaN(value) ? 0 : ((top - value) / (top - bottom)).toFixed(2);
      if (spans[t].level !== level) { spans[t].style.setProperty("--level", level); spans[t].level = level; }
      name += ` k${mask.weight[t] === 0 ? 0 : mask.sure[t] + 2 * (mask.cuda[t] && state.knobs.lambda > 0)}`;
      if (lowest && t >= lowest.start && t <= lowest.end && !Number.isNaN(windows.means[t])) name += " low";
      if (lowest && t === lowest.start) name += " first";
      if (lowest && t === lowest.end) name += " last";
    }
    if (state.only.size && !state.only.has(columns.category[t])) name += " off";
    if (found.tokens && found.tokens.has(t)) name += " hit";
    if (t === state.at) name += " at";
    if (spans[t].className !== name) spans[t].className = name;
  }
  if (!mask) {  // labels alone; beside scored samples too
    $("counts").tBodies[0].replaceChildren();
    $("weight").textContent = $("map-caption").textContent = "This sample has no scores.";
    $("mini").width = $("mini").width;  // empties it
    return;
  }
  const { counts } = mask, lambda = state.knobs.lambda;
  const rows = [["0", "dropped"], ["1", "confident"], [`λ = ${lambda}`, "kernel, launch"], [`1 + λ = ${+(1 + lambda).toFixed(6)}`, "both"]];
  $("counts").tBodies[0].replaceChildren(...rows.map(([value, why], k) => element("tr", { "data-kind": k },
    element("th", { scope: "row" }, element("span", { class: `key k${k}` }), `${value}, ${why}`),
    element("td", {}, String(counts[k])), element("td", {}, percent(counts[k], columns.length)))));
  const stored = current().weight === null ? "" : ` In the dataset w = ${number(current().weight)}.`;
  $("weight").textContent = lowest ? `w = 1 − ${number(lowest.mean)} = ${number(lowest.weight)}; sum of M = ${number(mask.sum, 1)}.${stored}` : "";
  $("map-caption").textContent = `Mean confidence of the window of ${state.knobs.window} around each token, over its position; below, categories. `
    + (lowest ? `Lowest ${number(lowest.mean)}, tokens ${lowest.start} to ${lowest.end} (shaded; a line above them in the code).` : "");
  drawScale();
  drawMap();
}

// What the darkest and the lightest background stand for: window means lie close together, so theirs are stretched.
function scaleEnds() {
  if (!windows || state.mode !== "window") return [0, 1];
  const means = windows.means.filter((mean) => !Number.isNaN(mean)).sort(), bottom = means[0], top = means.at(-1);
  return top > bottom ? [bottom, top] : [top - 1, top];
}

function drawScale() {
  const [bottom, top] = scaleEnds(), end = (value) => (state.mode === "window" ? number(value, 2) : String(value));
  const steps = [0, 0.25, 0.5, 0.75, 1].map((value) => {
    const box = element("i");
    box.style.setProperty("--level", 1 - value);
    return box;
  });
  $("scale").replaceChildren(element("span", {}, state.mode === "mask" ? "colours as in the table above" : end(bottom)),
    ...(state.mode === "mask" ? [] : [...steps, element("span", {}, end(top)), element("span", {}, state.mode === "confidence" ? "framed: M = 0" : "of this sample")]));
}

function drawMap() {
  const canvas = $("mini"), ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = 84, n = columns.length;
  if (!width || !mask || !windows.lowest) return;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(name).trim();
  const draw = canvas.getContext("2d"), x = (t) => 24 + (t / n) * (width - 26), y = (c) => 66 - 62 * c;
  draw.scale(ratio, ratio);
  draw.font = "11px system-ui, sans-serif";
  for (const c of [0, 0.5, 1]) {
    draw.fillStyle = colour("--line");
    draw.fillRect(24, y(c), width - 26, 1);
    draw.fillStyle = colour("--soft");
    draw.fillText(c, 2, Math.max(10, y(c) + 4));
  }
  const { lowest } = windows;
  draw.fillStyle = `rgba(${colour("--low")}, 0.22)`;
  draw.fillRect(x(lowest.start), 2, Math.max(2, x(lowest.end + 1) - x(lowest.start)), 66);
  draw.strokeStyle = `rgb(${colour("--mean")})`;
  draw.lineWidth = 1.5;
  draw.beginPath();
  let pen = false;
  windows.means.forEach((mean, t) => {
    if (Number.isNaN(mean)) pen = false;
    else { if (pen) draw.lineTo(x(t), y(mean)); else draw.moveTo(x(t), y(mean)); pen = true; }
  });
  draw.stroke();
  draw.fillStyle = `rgb(${colour("--low")})`;
  draw.beginPath();
  draw.arc(x(lowest.centre), y(lowest.mean), 3.5, 0, 7);
  draw.fill();
  const hues = ["", "--soft", "--blue", "--orange", "--green", "--red", "--sky", "--pink", "--green", "--blue", "--orange", "--red", "--sky", "--pink"];
  columns.category.forEach((category, t) => {
    if (!category) return;
    draw.fillStyle = colour(hues[category]);
    draw.fillRect(x(t), 72, Math.max(1, (width - 26) / n), 9);
  });
  if (state.at >= 0) { draw.fillStyle = colour("--focus"); draw.fillRect(x(state.at), 0, 2, height); }
}

function drawLegend() {
  const numbers = new Array(data.categories.length).fill(0), sums = numbers.slice();
  columns.category.forEach((category, t) => { numbers[category]++; if (mask) sums[category] += columns.confidence[t]; });
  $("legend").replaceChildren(...data.categories.map((name, category) => {
    const box = element("input", { type: "checkbox", value: category });
    box.checked = state.only.has(category);
    const mean = mask && numbers[category] ? ` · ${number(sums[category] / numbers[category], 2)}` : "";
    return element("li", { class: numbers[category] ? "" : "none" }, element("label", {}, box,
      element("span", { class: "word" }, element("span", { class: `g${category}` }, words(name))), element("small", {}, `${numbers[category]}${mean}`)));
  }));
}

function card(t) {
  const sample = current(), flags = columns.flags[t], start = columns.start[t];
  const text = start < 0 ? "a token of the template" : spelled(sample.response.slice(start, columns.end[t]));
  const rows = [["token", `${t} of ${columns.length}, id ${columns.id[t]}`], ["category", words(data.categories[columns.category[t]])],
    ["stands in", `${words(data.locations[flags & LOCATION])}${flags & IN_CODE ? "" : ", outside the code"}`]];
  if (flags & STATEMENT) rows.push(["statement", "of the paper's label set"]);
  if (columns.distance[t] < 255) rows.push(["steps from a thread index", columns.distance[t]]);
  if (mask) {
    rows.unshift(["probability", number(columns.confidence[t])], ["rank", columns.rank[t]], ["entropy", `${number(half(columns.entropy[t]), 2)} nats`]);
    if (columns.entropy_top20) rows.splice(3, 0, ["entropy of the top 20", `${number(half(columns.entropy_top20[t]), 2)} nats`]);
    if (columns.ref_logprob) rows.splice(1, 0, ["under the reference", number(Math.exp(half(columns.ref_logprob[t])))]);
    rows.push(["mask", `M = ${+mask.weight[t].toFixed(4)} (${mask.sure[t]} + ${state.knobs.lambda} × ${mask.cuda[t]})`]);
    rows.push(["window mean", Number.isNaN(windows.means[t]) ? "no window here" : number(windows.means[t])]);
  }
  const body = element("tbody", {}, ...rows.map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, String(value)))));
  const parts = [element("code", {}, text), element("table", {}, body)];
  if (mask && columns.topk_ids) {
    const k = columns.topk_ids.length / columns.length;
    const others = Array.from({ length: k }, (_, i) => columns.length * i + t).map((i) => {
      const id = columns.topk_ids[i], known = data.vocabulary[id];
      return element("tr", { class: "alternative" }, element("th", { scope: "row" }, known === undefined ? `id ${id}` : spelled(known)),
        element("td", {}, number(Math.exp(half(columns.topk_logprob[i]))) + (id === columns.id[t] ? " ← this token" : "")));
    });
    parts.push(element("table", {}, element("caption", {}, "most probable"), element("tbody", {}, ...others)));
  }
  return parts;
}

function showCard(t) {
  const box = $("card"), place = spans[t].getClientRects()[0] || spans[t].getBoundingClientRect();
  if (carded !== t) box.replaceChildren(...card(t));
  carded = t;
  box.hidden = false;
  const below = place.bottom + 8 + box.offsetHeight < innerHeight;
  box.style.left = `${Math.max(4, Math.min(place.left, innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${below ? place.bottom + 8 : Math.max(4, place.top - box.offsetHeight - 8)}px`;
}
function hideCard() {
  $("card").hidden = true;
  carded = -1;
}
function moveCard() { if (carded === state.at && carded >= 0) showCard(carded); else hideCard(); }

function goTo(t, shown) {
  if (state.at >= 0) spans[state.at].classList.remove("at");
  state.at = Math.max(0, Math.min(columns.length - 1, t));
  spans[state.at].classList.add("at");
  const place = spans[state.at].getBoundingClientRect();
  if (place.top < $("top").getBoundingClientRect().bottom || place.bottom > innerHeight - 40) spans[state.at].scrollIntoView({ block: "center" });
  if (shown) showCard(state.at);
  drawMap();
  link();
}

function link() {
  const at = state.at >= 0 ? `&${state.at}` : "";
  history.replaceState(null, "", `#${current().sample_id}${at}`);
}
