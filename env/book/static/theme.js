// Before anything is drawn: the colours that the reader chose; without a choice, the system's.
try {
  const chosen = localStorage.getItem("gpulab-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser may keep nothing for pages from files.
}
