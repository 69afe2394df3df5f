// The frame: the list of pages on a phone, the colours, where one is on the page, copying code.
"use strict";
(() => {
  const root = document.documentElement;
  const menu = document.querySelector("button.menu");

  const showPages = (open) => {
    document.body.classList.toggle("pages-open", open);
    menu.setAttribute("aria-expanded", String(open));
  };
  menu.addEventListener("click", () => showPages(!document.body.classList.contains("pages-open")));
  document.querySelector(".shade").addEventListener("click", () => showPages(false));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && document.body.classList.contains("pages-open")) {
      showPages(false);
      menu.focus();
    }
  });
  // The page that is open is in sight, also far down the list.
  const here = document.querySelector("nav.pages [aria-current]");
  if (here) {
    const list = document.querySelector("nav.pages");
    list.scrollTop = here.offsetTop - list.clientHeight / 2;
  }

  document.querySelector("button.theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try {
      localStorage.setItem("gpulab-theme", root.dataset.theme);
    } catch {
      // Then the choice holds for this page.
    }
  });

  const links = new Map([...document.querySelectorAll(".contents a")].map((a) => [a.hash.slice(1), a]));
  const headings = [...links.keys()].map((id) => document.getElementById(decodeURIComponent(id))).filter(Boolean);
  const follow = () => {
    const passed = headings.filter((heading) => heading.getBoundingClientRect().top < 120);
    const now = passed.length ? passed[passed.length - 1] : headings[0];
    for (const [id, link] of links) {
      const current = decodeURIComponent(id) === now.id;
      if (current && !link.classList.contains("current")) link.scrollIntoView({ block: "nearest" });
      link.classList.toggle("current", current);
    }
  };
  if (headings.length) {
    let waiting = false;
    addEventListener("scroll", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        follow();
      });
    }, { passive: true });
    follow();
  }

  for (const source of document.querySelectorAll(".cell .source")) {
    const button = document.createElement("button");
    button.className = "copy";
    button.textContent = "copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(source.querySelector("pre").textContent);
        button.textContent = "copied";
      } catch {
        button.textContent = "not allowed";
      }
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
    source.append(button);
  }
})();
