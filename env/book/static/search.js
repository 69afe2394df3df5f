// The search: every word typed must be in a part of a page, anywhere in its words, so that `a[i]` and `__syncthreads` are
// found as well. The index is a script that comes with the first search: half a megabyte is looked through in milliseconds.
"use strict";
(() => {
  const up = document.currentScript.dataset.up;
  const dialog = document.querySelector("dialog.search");
  const input = dialog.querySelector("input");
  const hits = dialog.querySelector(".hits");
  const status = dialog.querySelector(".status");
  const MOST = 40;
  const AROUND = 70;
  let parts = null;

  const load = () => new Promise((resolve, reject) => {
    if (parts) return resolve();
    const script = document.createElement("script");
    script.src = `${up}static/search-index.js`;
    script.onload = () => {
      parts = window.BOOK_INDEX.flatMap(([page, rows]) => rows.map(([address, title, words]) => (
        { page, address, title, words, low: words.toLowerCase(), head: title.toLowerCase() }
      )));
      resolve();
    };
    script.onerror = () => reject(new Error("static/search-index.js is missing beside the pages; next: make book"));
    document.head.append(script);
  });

  const count = (text, word) => text.split(word).length - 1;
  const startsWord = (text, word) => {
    const at = text.indexOf(word);
    return at === 0 || (at > 0 && !/[\p{L}\p{N}_]/u.test(text[at - 1]));
  };
  const worth = (part, words) => {
    let sum = 0;
    for (const word of words) {
      const inHead = part.head.includes(word);
      const times = count(part.low, word);
      if (!inHead && !times) return 0;
      sum += (inHead ? (startsWord(part.head, word) ? 20 : 10) : 0) + (startsWord(part.low, word) ? 4 : 0) + Math.min(times, 8);
    }
    if (words.length === 1) return sum;
    const phrase = words.join(" ");
    return sum + (part.head.includes(phrase) ? 60 : 0) + (part.low.includes(phrase) ? 30 : 0);
  };

  // The text with <mark> around what was found; made of text nodes, as an index is no place for tags.
  const marked = (text, words) => {
    const made = document.createDocumentFragment();
    const low = text.toLowerCase();
    let at = 0;
    while (at < text.length) {
      let next = null;
      for (const word of words) {
        const found = low.indexOf(word, at);
        if (found >= 0 && (!next || found < next.at)) next = { at: found, length: word.length };
      }
      if (!next) break;
      made.append(text.slice(at, next.at));
      const mark = document.createElement("mark");
      mark.textContent = text.slice(next.at, next.at + next.length);
      made.append(mark);
      at = next.at + next.length;
    }
    made.append(text.slice(at));
    return made;
  };
  // Around the words together, where they stand so, else around the first of them; beginning with a whole word.
  const excerpt = (part, words) => {
    const places = [words.join(" "), ...words].map((word) => part.low.indexOf(word)).filter((at) => at >= 0);
    const wish = Math.max(0, (places[0] ?? 0) - AROUND);
    const first = wish && part.words.indexOf(" ", wish) + 1;
    const end = Math.min(part.words.length, first + 3 * AROUND);
    return `${first ? "… " : ""}${part.words.slice(first, end)}${end < part.words.length ? " …" : ""}`;
  };

  const show = (text) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    hits.replaceChildren();
    if (!words.length) {
      status.textContent = "";
      return;
    }
    const found = parts.map((part) => ({ part, worth: worth(part, words) })).filter((one) => one.worth > 0);
    found.sort((a, b) => b.worth - a.worth);
    status.textContent = found.length ? `${found.length} ${found.length === 1 ? "place" : "places"}` : "nothing found";
    for (const { part } of found.slice(0, MOST)) {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = up + part.address;
      const where = document.createElement("small");
      where.textContent = part.page;
      const title = document.createElement("strong");
      title.append(marked(part.title === part.page ? "The page's beginning" : part.title, words));
      const words_ = document.createElement("span");
      words_.append(marked(excerpt(part, words), words));
      link.append(where, title, words_);
      link.addEventListener("click", () => dialog.close());
      item.append(link);
      hits.append(item);
    }
  };

  const open = async () => {
    if (!dialog.open) dialog.showModal();
    input.select();
    try {
      await load();
      show(input.value);
    } catch (error) {
      status.textContent = error.message;
    }
  };
  document.querySelector("button.find").addEventListener("click", open);
  input.addEventListener("input", () => parts && show(input.value));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.querySelector("form").addEventListener("submit", (event) => {
    // Return in the field goes to the first place; the button closes.
    if (event.submitter?.matches(".icon") && document.activeElement !== input) return;
    event.preventDefault();
    hits.querySelector("a")?.click();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const all = [input, ...hits.querySelectorAll("a")];
    const at = all.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
    all[Math.max(0, Math.min(at, all.length - 1))].focus();
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea");
    if ((event.key === "/" && !typing) || (event.key === "k" && (event.ctrlKey || event.metaKey))) {
      event.preventDefault();
      open();
    }
  });
})();
