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
// A plot gets the height that text and code leave it, and at least two fifths of the window's: smaller, nobody could read it.
const fit = () => {
  const slide = Reveal.getCurrentSlide()?.querySelector('.slide');
  const plots = [...slide?.querySelectorAll('.figure svg') ?? []];
  plots.forEach(plot => plot.style.removeProperty('max-height'));
  const over = slide ? slide.scrollHeight - slide.clientHeight : 0;
  if (over > 0) {
    const heights = plots.map(plot => plot.getBoundingClientRect().height);
    plots.forEach((plot, at) => { plot.style.maxHeight = `${Math.max(heights[at] - over / plots.length, 0.4 * innerHeight)}px`; });
  }
};
['ready', 'slidechanged'].forEach(when => Reveal.on(when, fit));
addEventListener('resize', fit);
