// The page of experiments: sliders, and the simulator that runs a kernel whenever one of them moves.
const program = (() => {
  let loading;
  // A page from a file may read no other file, so the program is a script, and loaded when it is first needed.
  const script = () => new Promise((done, failed) => {
    const element = document.createElement("script");
    element.src = "static/warpsim.js";
    element.onload = done;
    element.onerror = () => failed(new Error("static/warpsim.js is missing beside this page"));
    document.head.append(element);
  });
  const load = async () => {
    await script();
    const packed = Uint8Array.from(atob(window.gpulabWarpsim), (letter) => letter.charCodeAt(0));
    const bytes = new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip")));
    return WebAssembly.compile(await bytes.arrayBuffer());
  };
  // plotters brings functions along that measure text in a page; the pictures' text is placed without them.
  const imports = (module) => {
    const given = {};
    for (const { module: from, name } of WebAssembly.Module.imports(module)) {
      (given[from] ??= {})[name] = () => { throw new Error(`it asked for ${name}`); };
    }
    return given;
  };
  let instance;
  return async (question) => {
    loading ??= load();
    try {
      const module = await loading;
      instance ??= (await WebAssembly.instantiate(module, imports(module))).exports;
      const asked = new TextEncoder().encode(JSON.stringify(question));
      const at = instance.room(asked.length);
      new Uint8Array(instance.memory.buffer, at, asked.length).set(asked);
      const answer = instance.answer(at, asked.length);
      const length = new DataView(instance.memory.buffer).getUint32(answer, true);
      const text = new TextDecoder().decode(new Uint8Array(instance.memory.buffer, answer + 4, length));
      instance.forget(answer, length + 4);
      return JSON.parse(text);
    } catch (error) {
      // What has stopped half-way is not used again.
      instance = undefined;
      return { error: `the simulator stopped: ${error.message}\nnext: load this page again, or use another browser` };
    }
  };
})();

for (const section of document.querySelectorAll(".experiment")) {
  const { sliders, kernels } = window.gpulabExperiments[section.dataset.name];
  const inputs = [...section.querySelectorAll("input[type=range]")];
  const [picture, counters, wrong] = [".picture", ".counters", ".wrong"].map((name) => section.querySelector(name));
  const [source, ptx, edit] = [".cuda code", ".ptx", ".edit"].map((name) => section.querySelector(name));
  const edited = kernels.map((kernel) => kernel.ptx);
  const values = () => inputs.map((input, at) => sliders[at].values[input.value]);
  // With several kernels the first slider chooses one.
  const chosen = () => (kernels.length > 1 ? values()[0] : 0);
  let runs = 0;

  const label = () => {
    inputs.forEach((input, at) => {
      const { words, values: numbers } = sliders[at];
      const said = words[input.value] ?? String(numbers[input.value]);
      input.nextElementSibling.textContent = said;
      input.setAttribute("aria-valuetext", said);
    });
    source.textContent = kernels[chosen()].text.trim();
    ptx.value = edited[chosen()];
  };
  const run = async () => {
    const mine = ++runs;
    const question = { experiment: section.dataset.name, values: values() };
    question.kernels = kernels.map((kernel, at) => ({ ...kernel, ptx: edited[at] }));
    const answer = await program(question);
    // A slider that moved on has asked again.
    if (mine !== runs) return;
    wrong.hidden = !answer.error;
    wrong.textContent = answer.error ?? "";
    section.classList.toggle("stale", Boolean(answer.error));
    if (answer.error) return;
    picture.innerHTML = answer.picture;
    counters.innerHTML = answer.table;
    if (answer.findings) counters.closest("details").open = true;
  };

  inputs.forEach((input) => input.addEventListener("input", () => { label(); run(); }));
  section.querySelector(".run").addEventListener("click", () => { edited[chosen()] = ptx.value; run(); });
  section.querySelector(".reset").addEventListener("click", () => {
    edited[chosen()] = kernels[chosen()].ptx;
    label();
    run();
  });
  for (const hidden of [section.querySelector(".sliders"), ptx, edit]) hidden.hidden = false;
  label();
}
