// The places of the contest, from the stream of events.
"use strict";
const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const SIGNATURES = {
  transpose: "transpose(const float *in, float *out, int rows, int columns): out[x * rows + y] = in[y * columns + x], blocks of 32 × 8 threads, one thread for each element",
  row_sums: "row_sums(const float *in, float *out, int rows, int columns): out[y] is the sum of row y, one block of 256 threads for each row",
};
const text = (name, words, className) => {
  const made = document.createElement(name);
  made.textContent = words;
  if (className) made.className = className;
  return made;
};
const number = (value) => value.toLocaleString("en");

function table(task) {
  const section = document.createElement("section"), timed = task.rows.some((row) => row.gpu_us);
  section.append(text("h2", task.task), text("p", `${SIGNATURES[task.task] || ""}`));
  section.append(text("p", `${task.rows.length} of ${task.tried} who tried have a kernel that is right.`));
  if (!task.rows.length) return section;
  const made = document.createElement("table"), head = document.createElement("tr"), body = document.createElement("tbody");
  for (const [name, className] of [["place", "number"], ["who", ""], ...(timed ? [["µs on the GPU", "number"]] : []), ["traffic", "number"], ["", "bar"], ["instructions", "number"], ["tries", "number"]]) {
    const cell = text("th", name, className);
    cell.scope = "col";
    head.append(cell);
  }
  const most = Math.max(...task.rows.map((row) => row.traffic));
  task.rows.forEach((row, index) => {
    const line = document.createElement("tr"), who = text("th", row.name), bar = document.createElement("td"), svg = document.createElementNS(SVG, "svg"), rect = document.createElementNS(SVG, "rect");
    who.scope = "row";
    for (const [key, value] of Object.entries({ viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" })) svg.setAttribute(key, value);
    for (const [key, value] of Object.entries({ width: (100 * row.traffic) / most, height: 10 })) rect.setAttribute(key, value);
    svg.append(rect);
    bar.append(svg);
    line.append(text("td", String(index + 1), "number"), who, ...(timed ? [text("td", row.gpu_us ? row.gpu_us.toFixed(1) : "", "number")] : []),
      text("td", number(row.traffic), "number"), bar, text("td", number(row.instructions), "number"), text("td", number(row.tries), "number"));
    body.append(line);
  });
  const top = document.createElement("thead");
  top.append(head);
  made.append(top, body);
  section.append(made);
  return section;
}

at("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
document.addEventListener("keydown", (event) => { if (event.key === "d" && !event.ctrlKey && !event.metaKey && !event.altKey) at("theme").click(); });
const stream = new EventSource("/stream");
stream.addEventListener("message", (event) => {
  const { contest } = JSON.parse(event.data);
  at("state").textContent = "";
  if (contest.length) at("tasks").replaceChildren(...contest.map(table));
});
stream.addEventListener("error", () => { at("state").textContent = "The class has ended, or this page cannot reach it. It tries again; if it stays so: make class"; });
