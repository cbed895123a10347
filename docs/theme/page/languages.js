// Changing the language keeps the reader's place: sections have the same names in both.
function place() {
  const sections = [...document.querySelectorAll("main section section[id]")];
  const named = sections.find(s => "#" + s.id === location.hash);
  const seen = s => { const r = s.getBoundingClientRect(); return r.top < innerHeight && r.bottom > 0; };
  if (named && seen(named)) return location.hash;
  if (!scrollY) return "";
  const passed = sections.filter(s => s.getBoundingClientRect().top < innerHeight / 3);
  return passed.length ? "#" + passed.at(-1).id : "";
}
for (const kind of ["click", "auxclick"])
  document.addEventListener(kind, event => {
    const link = event.target.closest?.("a.language-switch");
    if (link) link.hash = place();
  }, true);
