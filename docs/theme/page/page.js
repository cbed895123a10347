// The colours, as the reader wants them; the section being read; what scrolls, by keyboard too.
const root = document.documentElement, button = document.querySelector(".theme-switch");
const modes = ["auto", "light", "dark"];
function say() { button.ariaLabel = button.title = button.dataset[root.dataset.theme]; }
button.addEventListener("click", () => {
  root.dataset.theme = modes[(modes.indexOf(root.dataset.theme) + 1) % modes.length];
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* not kept, then */ }
  say();
});
button.hidden = false;
if (!modes.includes(root.dataset.theme)) root.dataset.theme = "auto";
say();

// A link of the page's contents leads out of its popover.
for (const panel of document.querySelectorAll("[popover]"))
  panel.addEventListener("click", e => e.target.closest("a") && panel.matches(":popover-open") && panel.hidePopover());

// The list of all pages shows where the reader is.
const side = document.getElementById("sidebar"), current = side.querySelector("a.current");
const show = () => { if (current) side.scrollTop = current.offsetTop - side.clientHeight / 2; };
side.addEventListener("toggle", show);
show();

// Which section is being read: the last one that has begun, and at the end of the page the last.
const links = new Map([...document.querySelectorAll(".page-toc a[href^='#']")].map(a => [a.hash.slice(1), a]));
if (links.size) {
  const sections = [...links.keys()].map(id => document.getElementById(id)).filter(Boolean);
  const footer = document.querySelector(".bd-footer-content");
  const mark = () => {
    const end = footer.getBoundingClientRect().bottom < innerHeight + 2;
    const begun = sections.filter(s => end || s.getBoundingClientRect().top < innerHeight / 4).at(-1);
    for (const [id, link] of links)
      id === begun?.id ? link.ariaCurrent = "true" : link.removeAttribute("aria-current");
  };
  const watch = new IntersectionObserver(mark, {rootMargin: "0px 0px -75% 0px"});
  sections.forEach(s => watch.observe(s));
  new IntersectionObserver(mark, {threshold: [0, 1]}).observe(footer);
}

// What is larger than its place can be scrolled by keyboard.
const scrolls = e => e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight;
const sizes = new ResizeObserver(entries => {
  for (const {target} of entries)
    scrolls(target) ? target.tabIndex = 0 : target.removeAttribute("tabindex");
});
for (const each of document.querySelectorAll("article :is(.highlight pre, .math, .see-scroll, .pst-scrollable-table-container, .cell_output:has(> img))"))
  if (each.closest("dl.py, dl.errors, dl.today")) each.tabIndex = 0;  // not laid out yet
  else sizes.observe(each);
