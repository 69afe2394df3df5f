// The slides fill the window and scroll where they must: they are not scaled, so that text stays as large as chosen.
Reveal.initialize({
  plugins: [RevealNotes],
  disableLayout: true,
  hash: true,
  center: false,
  transition: 'none',
  slideNumber: 'h.v',
  controlsTutorial: false
});
// T: light and dark; what is chosen here is the book's choice, too.
Reveal.addKeyBinding({ keyCode: 84, key: 'T', description: 'Light and dark' }, () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
  try { localStorage.setItem('gpulab-theme', root.dataset.theme); } catch { /* a browser may keep nothing */ }
});
