// Draws what the stream of events tells. Two kinds of marks, dots and a line, so that colour alone says nothing.
"use strict";
const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 1000, HEIGHT = 330, LEFT = 40, RIGHT = 960, TOP = 60, BASE = 265, BINS = 46;
let state = { lessons: [] }, chosen = "", only = -1;
const typed = new Map(), cards = new Map();

const figures = (value) => {
  const size = Math.abs(value);
  if (value !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(1).replace("e+", "e");
  return Number(value.toPrecision(3)).toLocaleString("en");
};
const node = (name, attributes, text) => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
};
const quantile = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];

// An axis that shows most values; what lies far outside is counted at its ends.
function axis(guesses, found) {
  const all = [...guesses, ...found].sort((a, b) => a - b);
  const middle = quantile(all, 0.5);
  const log = all[0] > 0 && all[all.length - 1] / all[0] >= 20;
  let low, high;
  if (log) {
    low = Math.max(all[0], middle / 1e4) / 1.3;
    high = Math.min(all[all.length - 1], middle * 1e4) * 1.3;
  } else {
    const span = Math.max(quantile(all, 0.75) - quantile(all, 0.25), Math.abs(middle) * 0.2, 1e-9) * 10;
    low = Math.max(all[0], middle - span);
    high = Math.min(all[all.length - 1], middle + span);
    if (low >= 0 && low < high / 2) low = 0;
    const rim = (high - low) * 0.06 || Math.abs(high) * 0.2 || 1;
    low -= low === 0 ? 0 : rim;
    high += rim;
  }
  const scale = log ? Math.log : (value) => value;
  const place = (value) => LEFT + (RIGHT - LEFT) * Math.min(1, Math.max(0, (scale(value) - scale(low)) / (scale(high) - scale(low))));
  return { low, high, log, place, ticks: log ? decades(low, high) : steps(low, high) };
}
function decades(low, high) {
  const many = Math.log10(high / low) > 2.5;
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    for (const first of many ? [1] : [1, 2, 5]) {
      const value = first * 10 ** power;
      if (value >= low && value <= high) ticks.push(value);
    }
  return ticks.filter((_, index) => index % Math.ceil(ticks.length / 9) === 0);
}
function steps(low, high) {
  const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((one) => one * power >= rough);
  const ticks = [];
  for (let value = Math.ceil(low / step) * step; value <= high * (1 + 1e-9); value += step) ticks.push(Math.abs(value) < step / 1e6 ? 0 : value);
  return ticks;
}

function draw(question, span) {
  const svg = node("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  const guesses = question.guesses, shown = span ? [span[1], span[2]] : [];
  if (!guesses.length && !shown.length) {
    svg.append(node("text", { x: WIDTH / 2, y: HEIGHT / 2 }, "no prediction yet"));
    svg.setAttribute("aria-label", "no prediction yet");
    return svg;
  }
  const { low, high, log, place, ticks } = axis(guesses, shown);
  if (span) {
    const [from, to, x] = [place(span[1]), place(span[2]), place(span[0])];
    if (to - from > 4) svg.append(node("rect", { class: "band", x: from, width: to - from, y: TOP, height: BASE - TOP }));
    const label = `measured ${figures(span[0])}`;
    svg.append(node("text", { class: "value", x: Math.min(RIGHT - 130, Math.max(LEFT + 130, x)), y: 34 }, label));
  }
  svg.append(node("line", { class: "axis", x1: LEFT, x2: RIGHT, y1: BASE, y2: BASE }));
  for (const value of ticks) {
    svg.append(node("line", { class: "axis", x1: place(value), x2: place(value), y1: BASE, y2: BASE + 8 }));
    svg.append(node("text", { x: place(value), y: BASE + 42 }, figures(value)));
  }
  const bins = new Map();
  for (const value of guesses) {
    const bin = Math.round(((place(value) - LEFT) / (RIGHT - LEFT)) * BINS);
    bins.set(bin, (bins.get(bin) || 0) + 1);
  }
  const most = Math.max(1, ...bins.values());
  const radius = Math.min((RIGHT - LEFT) / BINS / 2, (BASE - TOP) / most / 2);
  for (const [bin, count] of bins)
    for (let level = 0; level < count; level++)
      svg.append(node("circle", { class: "dot", cx: LEFT + ((RIGHT - LEFT) * bin) / BINS, cy: BASE - radius * (2 * level + 1) - 1, r: radius }));
  if (span) svg.append(node("line", { class: "line", x1: place(span[0]), x2: place(span[0]), y1: TOP - 12, y2: BASE }));
  const beyond = [guesses.filter((value) => value < low).length, guesses.filter((value) => value > high).length];
  if (beyond[0]) svg.append(node("text", { x: LEFT + 70, y: TOP + 20 }, `← ${beyond[0]} below`));
  if (beyond[1]) svg.append(node("text", { x: RIGHT - 70, y: TOP + 20 }, `${beyond[1]} above →`));
  svg.setAttribute("aria-label", `${summary(question, span)} ${log ? "Logarithmic" : "Linear"} axis from ${figures(low)} to ${figures(high)}.`);
  return svg;
}

function summary(question, span) {
  const guesses = question.guesses, count = guesses.length;
  if (!count) return span ? `No prediction; measured ${figures(span[0])}.` : "No prediction yet.";
  let text = `${count} prediction${count === 1 ? "" : "s"}, ${figures(guesses[0])} to ${figures(guesses[count - 1])}, half of them up to ${figures(quantile(guesses, 0.49))}`;
  if (span) {
    const near = guesses.filter((value) => (span[0] > 0 && value > 0 ? Math.max(value / span[0], span[0] / value) <= 1.25 : value === span[0])).length;
    const range = span[2] > span[1] ? ` (${figures(span[1])} to ${figures(span[2])} on different machines)` : "";
    text += `; measured ${figures(span[0])}${range}, and ${near} within a factor of 1.25`;
  }
  return `${text}.`;
}

function card(key, question) {
  const known = cards.get(key);
  if (known) return known;
  const made = document.createElement("article");
  const head = document.createElement("h2"), said = document.createElement("p"), told = document.createElement("p");
  head.append(question.text ? `${question.text} ` : "");
  const name = document.createElement("code");
  name.textContent = question.name;
  head.append(name);
  said.className = "said";
  told.className = "told";
  const label = document.createElement("label"), input = document.createElement("input");
  input.inputMode = "decimal";
  input.addEventListener("input", () => { typed.set(key, input.value.trim()); render(); });
  label.append("measured, where the lesson does not say: ", input);
  told.append(label);
  made.append(head, document.createElement("div"), said, told);
  cards.set(key, made);
  return made;
}

function render() {
  at("board").hidden = !(state.contest || []).length;
  const lessons = state.lessons, many = lessons.length > 1;
  document.querySelector(".lessons").hidden = !many;
  const names = lessons.map((one) => one.lesson);
  if (!names.includes(chosen)) chosen = names[names.length - 1] || "";
  const select = at("lessons");
  if ([...select.options].map((one) => one.value).join() !== names.join())
    select.replaceChildren(...names.map((name) => new Option(name, name)));
  select.value = chosen;
  const lesson = lessons.find((one) => one.lesson === chosen);
  at("lesson").textContent = lesson ? lesson.lesson.replaceAll("_", " ") : "The class predicts";
  if (!lesson) {
    at("counts").textContent = "Nobody has joined yet.";
    at("questions").replaceChildren();
    at("rows").replaceChildren();
    return;
  }
  const learners = lesson.learners, some = (test) => learners.filter(test).length;
  at("counts").textContent = `${learners.length} joined · ${some((one) => one.predicted > 0)} have predicted · ` +
    `${some((one) => one.passed > 0)} have passed an exercise · ${some((one) => one.stuck.length > 0)} stuck`;
  const told = at("measured").getAttribute("aria-pressed") === "true";
  // What nobody has predicted yet stands last in a class that has begun.
  const shown = lesson.questions.map((question) => {
    const key = `${lesson.lesson} ${question.name}`, made = card(key, question), mine = Number(typed.get(key) || NaN);
    const span = !told ? null : question.measured || (Number.isFinite(mine) ? [mine, mine, mine] : null);
    made.children[1].replaceChildren(draw(question, span));
    made.children[2].textContent = summary(question, span);
    made.children[3].hidden = !told || Boolean(question.measured);
    return made;
  });
  only = Math.min(only, shown.length - 1);
  at("one").setAttribute("aria-pressed", String(only >= 0));
  at("questions").classList.toggle("one", only >= 0);
  const now = only >= 0 ? [shown[only]] : shown;
  const there = [...at("questions").children];
  if (there.length !== now.length || there.some((one, index) => one !== now[index])) at("questions").replaceChildren(...now);
  // Who needs help stands first.
  at("rows").replaceChildren(...[...learners].sort((a, b) => b.stuck.length - a.stuck.length).map((one) => {
    const row = document.createElement("tr");
    const done = lesson.exercises > 0 && one.passed >= lesson.exercises;
    const cells = [one.name, lesson.cells ? `${one.ran} of ${lesson.cells}` : one.ran, one.predicted,
      lesson.exercises ? `${one.passed} of ${lesson.exercises}${done ? " ✓" : ""}` : one.passed, one.stuck.join("; ")];
    cells.forEach((text, index) => {
      const cell = document.createElement(index === 0 ? "th" : "td");
      if (index === 0) cell.scope = "row";
      if (index === 3 && done) cell.className = "done";
      if (index === 4) cell.className = "stuck";
      cell.textContent = text;
      row.append(cell);
    });
    return row;
  }));
}

const pressed = (id) => { const now = at(id).getAttribute("aria-pressed") !== "true"; at(id).setAttribute("aria-pressed", String(now)); return now; };
// It stands below the plots, where a full screen ends: opened, it comes into sight.
const table = () => {
  const open = pressed("who");
  at("table").hidden = !open;
  if (open) at("table").scrollIntoView({ block: "start" }); else scrollTo(0, 0);
};
const step = (by) => { const count = (state.lessons.find((one) => one.lesson === chosen) || { questions: [] }).questions.length; if (count) only = only < 0 ? (by > 0 ? 0 : count - 1) : (only + by + count) % count; render(); };
const theme = () => {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
};
at("measured").addEventListener("click", () => { pressed("measured"); render(); });
at("who").addEventListener("click", table);
at("one").addEventListener("click", () => { only = only >= 0 ? -1 : 0; render(); });
at("theme").addEventListener("click", theme);
at("lessons").addEventListener("change", (event) => { chosen = event.target.value; only = -1; render(); });
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const keys = { m: () => { pressed("measured"); render(); }, t: table, d: theme, ArrowRight: () => step(1), ArrowLeft: () => step(-1), Escape: () => { only = -1; render(); } };
  const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (act) { act(); event.preventDefault(); }
});
const stream = new EventSource("/stream");
stream.addEventListener("message", (event) => { state = JSON.parse(event.data); at("state").textContent = ""; render(); });
stream.addEventListener("error", () => { at("state").textContent = "The class has ended, or this page cannot reach it. It tries again; if it stays so: make class"; });
