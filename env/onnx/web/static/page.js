// Runs the exported models: each call against candle's outputs, a drawn digit, a text that is written on.
const find = (where, name) => where.querySelector(name);
const sections = Object.fromEntries(["cnn", "gpt", "compare"].map((name) => [name, find(document, `section.${name}`)]));

const fail = (error) => {
  const place = find(document, "main > p.wrong[role]");
  place.hidden = false;
  place.textContent = error.message ?? String(error);
  find(document, ".loading").hidden = true;
  gpulab.failed = place.textContent;
};

const unpack = async (text) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const plain = new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
  return new Uint8Array(await plain.arrayBuffer());
};
const numbers = { float32: Float32Array, int64: BigInt64Array };
const tensor = async ({ type, dims, data }) => new ort.Tensor(type, new numbers[type]((await unpack(data)).buffer), dims);
const tensors = async (list) => Object.fromEntries(await Promise.all(list.map(async (one) => [one.name, await tensor(one)])));
const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];
const softmax = (logits) => {
  const most = Math.max(...logits);
  const parts = Array.from(logits, (x) => Math.exp(x - most));
  const sum = parts.reduce((a, b) => a + b);
  return parts.map((x) => x / sum);
};

const start = async () => {
  if (!window.ort || !gpulab.runtime) {
    throw new Error("ort.wasm.min.js or runtime.js is missing beside this page\nnext: make export-onnx ARGS=\"--web DIR\" writes them all");
  }
  const { glue, program } = gpulab.runtime;
  // A page from a file may import no file, but what it holds itself. Threads would need a server that isolates the page.
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmBinary = await unpack(program);
  ort.env.wasm.wasmPaths = { mjs: URL.createObjectURL(new Blob([await unpack(glue)], { type: "text/javascript" })) };
};
const open = async (model) => ort.InferenceSession.create(await unpack(model.onnx), { executionProviders: ["wasm"] });

// ---------------------------------------------------------------- the same numbers
// A maximum that meets a NaN keeps it.
const larger = (a, b) => (a >= b || Number.isNaN(a) ? a : b);
// The browser's clock has steps of 0.1 ms: the median is that of blocks of calls, each of some milliseconds.
const BLOCKS = 7, BLOCK_MS = 10;

const timed = async (call) => {
  const [times, counts] = [[], []];
  for (let block = 0; block < BLOCKS; block++) {
    const began = performance.now();
    let [count, took] = [0, 0];
    for (; took < BLOCK_MS; took = performance.now() - began, count++) await call();
    times.push(took / count);
    counts.push(count);
  }
  return { ms: median(times), runs: counts.reduce((a, b) => a + b) };
};

const judge = async (session, name, call) => {
  const [inputs, expected] = [await tensors(call.inputs), await tensors(call.outputs)];
  const given = await session.run(inputs);
  const names = (of) => Object.keys(of).toSorted().join(", ");
  if (names(given) !== names(expected)) throw new Error(`${name}, ${call.name}: outputs ${names(given)}, and candle's ${names(expected)}`);
  const row = { model: name, call: call.name, outputs: Object.keys(expected).length, numbers: 0, size: 0, largest: 0 };
  for (const [output, { dims, data }] of Object.entries(expected)) {
    const found = given[output];
    if (String(found.dims) !== String(dims)) throw new Error(`${name}, ${call.name}: ${output} has the shape ${found.dims}, and candle's ${dims}`);
    row.numbers += data.length;
    data.forEach((wanted, at) => {
      row.size = larger(row.size, Math.abs(wanted));
      row.largest = larger(row.largest, Math.abs(wanted - found.data[at]));
    });
  }
  const times = await timed(() => session.run(inputs));
  // Below 1 within that share of the largest number, as env/onnx/compare.py has it.
  return { ...row, ...times, equal: row.largest <= gpulab.runtime.limit * Math.min(1, row.size) };
};

const compare = async (opened) => {
  const { compare: section } = sections;
  const [body, verdict, rows] = [find(section, "tbody"), find(section, ".verdict"), []];
  section.hidden = false;
  find(section, ".limit").textContent = gpulab.runtime.limit;
  for (const [name, session] of opened) {
    for (const call of gpulab.models[name].calls) {
      verdict.textContent = `running ${name}, ${call.name} …`;
      const row = await judge(session, name, call);
      rows.push(row);
      const line = body.insertRow();
      line.className = row.equal ? "" : "apart";
      for (const text of [`${name}: ${row.call.replaceAll("-", " ")}`, row.largest.toExponential(1), row.ms.toPrecision(3), row.numbers, row.size.toFixed(3), row.runs]) {
        line.insertCell().textContent = text;
      }
    }
  }
  const equal = rows.filter((row) => row.equal).length;
  verdict.classList.add(equal === rows.length ? "equal" : "apart");
  verdict.textContent = `${equal} of ${rows.length} calls equal within ${gpulab.runtime.limit} (onnxruntime-web ${gpulab.runtime.version})`;
  return rows;
};

// ---------------------------------------------------------------- a drawn digit
const SIDE = 28, INNER = 20;

// Ink 0 to 1, scaled and placed as MNIST's images are; undefined where nothing is drawn.
const pixels = (pad, seen) => {
  const { width, height } = pad.canvas;
  const ink = pad.getImageData(0, 0, width, height).data;
  let [left, top, right, bottom] = [width, height, -1, -1];
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (ink[4 * (y * width + x)] < 32) continue;
      [left, top, right, bottom] = [Math.min(left, x), Math.min(top, y), Math.max(right, x), Math.max(bottom, y)];
    }
  }
  if (right < 0) return undefined;
  const [wide, high] = [right - left + 1, bottom - top + 1];
  const scale = INNER / Math.max(wide, high);
  const draw = (x, y) => {
    seen.fillStyle = "#000";
    seen.fillRect(0, 0, SIDE, SIDE);
    seen.imageSmoothingQuality = "high";
    seen.drawImage(pad.canvas, left, top, wide, high, x, y, wide * scale, high * scale);
    const { data } = seen.getImageData(0, 0, SIDE, SIDE);
    return Float32Array.from({ length: SIDE * SIDE }, (_, at) => data[4 * at] / 255);
  };
  const [x, y] = [(SIDE - wide * scale) / 2, (SIDE - high * scale) / 2];
  const centred = draw(x, y);
  const sum = centred.reduce((a, b) => a + b);
  const centre = (of) => centred.reduce((total, value, at) => total + value * (of(at) + .5), 0) / sum;
  return draw(x + SIDE / 2 - centre((at) => at % SIDE), y + SIDE / 2 - centre((at) => Math.floor(at / SIDE)));
};

const digits = (session) => {
  const { cnn: section } = sections;
  const [pad, seen, took, chances] = [".pad", ".seen", ".took", ".chances"].map((name) => find(section, name));
  const [context, small] = [pad, seen].map((canvas) => canvas.getContext("2d", { willReadFrequently: true }));
  const rows = Array.from({ length: 10 }, (_, digit) => {
    const row = document.createElement("li");
    row.innerHTML = `<span>${digit}</span><span class="track"><i></i></span><span></span>`;
    return chances.appendChild(row);
  });
  const show = (shares) => rows.forEach((row, digit) => {
    const share = shares?.[digit];
    find(row, "i").style.width = `${100 * (share ?? 0)}%`;
    row.lastChild.textContent = share === undefined ? "" : `${(100 * share).toFixed(1)} %`;
    row.classList.toggle("most", share !== undefined && share === Math.max(...shares));
  });
  let again = false, example = true;
  // A session makes one run at a time; of the drawings that come meanwhile the last one counts.
  const look = async () => {
    if (gpulab.looking) return void (again = true);
    gpulab.looking = true;
    const image = pixels(context, small);
    if (image) {
      const before = performance.now();
      const { logits } = await session.run({ images: new ort.Tensor("float32", image, [1, 1, SIDE, SIDE]) });
      took.textContent = `${(performance.now() - before).toFixed(1)} ms`;
      show(softmax(logits.data));
    }
    gpulab.looking = false;
    if (again) {
      again = false;
      await look();
    }
  };
  const clear = () => {
    context.fillStyle = "#000";
    context.fillRect(0, 0, pad.width, pad.height);
    small.clearRect(0, 0, SIDE, SIDE);
    took.textContent = "";
    example = false;
    show(undefined);
  };
  const line = (...points) => {
    Object.assign(context, { strokeStyle: "#fff", lineWidth: 22, lineCap: "round", lineJoin: "round" });
    context.beginPath();
    points.forEach(([x, y]) => context.lineTo(x, y));
    context.stroke();
  };
  let last;
  const at = (event) => {
    const box = pad.getBoundingClientRect();
    return [(event.clientX - box.left) * pad.width / box.width, (event.clientY - box.top) * pad.height / box.height];
  };
  pad.addEventListener("pointerdown", (event) => {
    if (example) clear();
    pad.setPointerCapture(event.pointerId);
    last = at(event);
    line(last, last);
    look().catch(fail);
  });
  pad.addEventListener("pointermove", (event) => {
    if (!last) return;
    const now = at(event);
    line(last, now);
    last = now;
    look().catch(fail);
  });
  for (const end of ["pointerup", "pointercancel"]) pad.addEventListener(end, () => { last = undefined; });
  find(section, ".clear").addEventListener("click", clear);
  clear();
  // A two to begin with, until the first stroke.
  line([85, 95], [95, 70], [125, 55], [160, 60], [180, 85], [172, 120], [140, 160], [105, 195], [85, 220], [125, 218], [195, 220]);
  example = true;
  section.hidden = false;
  return look();
};

// ---------------------------------------------------------------- a text that is written on
const writer = (session, model) => {
  const { gpt: section } = sections;
  const [prompt, temperature, go, took, written] =
    [".prompt", ".temperature", ".go", ".took", ".written"].map((name) => find(section, name));
  const whole = (list) => new ort.Tensor("int64", BigInt64Array.from(list, BigInt), [1, list.length]);
  const nothing = () => Object.fromEntries(model.past.map((name) => [name, new ort.Tensor("float32", new Float32Array(0), [1, model.heads, 0, model.head])]));
  // New tokens behind `held` others, whose keys and values are the past: the next token's logits, and the longer past.
  const step = async (tokens, held, past) => {
    const positions = tokens.map((_, at) => held + at);
    const mask = Array(held + tokens.length).fill(1);
    const given = await session.run({ input_ids: whole(tokens), attention_mask: whole(mask), position_ids: whole(positions), ...past });
    const [, count, vocabulary] = given.logits.dims;
    const present = model.past.map((name) => [name, given[name.replace("past_key_values", "present")]]);
    return [given.logits.data.slice((count - 1) * vocabulary), Object.fromEntries(present)];
  };
  const choose = (logits, heat) => {
    if (heat === 0) return logits.indexOf(Math.max(...logits));
    const shares = softmax(logits.map((x) => x / heat));
    let left = Math.random();
    return Math.max(0, shares.findIndex((share) => (left -= share) < 0));
  };
  let stop = false, running = false;
  const write = async () => {
    // At least one byte, which begins a text, and room for some.
    const tokens = [...new TextEncoder().encode(prompt.value || "\n")].slice(-Math.floor(model.context / 2));
    const [first, decoder] = [tokens.length, new TextDecoder()];
    written.replaceChildren(new TextDecoder().decode(Uint8Array.from(tokens)), document.createElement("b"));
    const began = performance.now();
    let [logits, past] = await step(tokens, 0, nothing());
    const prefill = performance.now() - began;
    const times = [];
    while (tokens.length < model.context && !stop) {
      const next = choose(logits, Number(temperature.value));
      // A letter of several bytes is shown once it is whole.
      written.lastChild.textContent += decoder.decode(Uint8Array.of(next), { stream: true });
      const before = performance.now();
      [logits, past] = await step([next], tokens.length, past);
      times.push(performance.now() - before);
      tokens.push(next);
      took.textContent = `prompt of ${first} bytes: ${prefill.toFixed(1)} ms; then ${median(times).toFixed(2)} ms a byte (median of ${times.length})`;
      // The page is drawn, and its buttons answer.
      await new Promise((done) => { setTimeout(done); });
    }
    if (!stop) took.textContent += `; the context of ${model.context} is full`;
  };
  const run = async () => {
    if (running) return void (stop = true);
    [running, stop, go.textContent] = [true, false, "Stop"];
    try {
      await write();
    } finally {
      [running, go.textContent] = [false, "Continue"];
    }
  };
  go.addEventListener("click", () => { run().catch(fail); });
  temperature.addEventListener("input", () => { temperature.nextElementSibling.textContent = Number(temperature.value).toFixed(1); });
  section.hidden = false;
};

// ---------------------------------------------------------------- all of it
(async () => {
  await start();
  const names = Object.keys(gpulab.models);
  if (names.length === 0) throw new Error("there is no model beside this page\nnext: make export-onnx ARGS=\"--web DIR\"");
  const opened = [];
  for (const name of names) opened.push([name, await open(gpulab.models[name])]);
  find(document, ".loading").hidden = true;
  const [cnn, gpt] = ["cnn", "gpt"].map((name) => opened.find(([of]) => of === name)?.[1]);
  if (cnn) await digits(cnn);
  // Another model's tokens are pieces of words, whose table the ONNX file does not hold.
  if (gpt && gpulab.models.gpt.bytewise) writer(gpt, gpulab.models.gpt);
  gpulab.rows = await compare(opened);
})().catch(fail);
