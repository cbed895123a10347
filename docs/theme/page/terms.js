// A link to a term shows its explanation under the mouse or the keyboard's focus; Escape puts it away.
// A finger that taps goes to the page of terms: nothing lies in its way.
let shown = null, timer = 0;  // the explanation in sight, its link, and where that was pointed at

function hide() {
  clearTimeout(timer);
  shown?.tip.hidePopover();
  shown = null;
}
function later() {  // long enough to move the mouse onto the explanation
  clearTimeout(timer);
  timer = setTimeout(hide, 200);
}
function place() {
  if (!shown) return;
  const {tip, link, part} = shown, line = link.getClientRects()[part];
  if (line.bottom < 0 || line.top > innerHeight) return hide();
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  const below = line.bottom + tip.offsetHeight + 8 < innerHeight;
  tip.style.left = `${Math.max(8, Math.min(line.left, room))}px`;
  tip.style.top = `${below ? line.bottom + 4 : Math.max(8, line.top - tip.offsetHeight - 4)}px`;
}
function show(tip, link, y) {
  clearTimeout(timer);
  if (shown?.link === link) return;
  hide();
  tip.showPopover();
  const lines = [...link.getClientRects()];  // a link may go on in the next line
  shown = {tip, link, part: Math.max(0, lines.findIndex(r => y >= r.top && y <= r.bottom))};
  place();
}
const tips = HTMLElement.prototype.showPopover && document.querySelector("template.term-tips");
if (tips) tips.replaceWith(tips.content);
for (const link of tips ? document.querySelectorAll("a.term") : []) {
  const tip = document.getElementById("tip-" + link.hash.slice(1));
  tip.popover = "manual";
  tip.setAttribute("role", "tooltip");
  link.setAttribute("aria-describedby", tip.id);
  link.addEventListener("pointerenter", e => e.pointerType === "mouse" && show(tip, link, e.clientY));
  link.addEventListener("pointerleave", later);
  link.addEventListener("focus", () => link.matches(":focus-visible") && show(tip, link));
  link.addEventListener("blur", hide);
  tip.addEventListener("pointerenter", () => clearTimeout(timer));
  tip.addEventListener("pointerleave", later);
}
addEventListener("keydown", e => e.key === "Escape" && hide());
for (const moved of ["scroll", "resize"]) addEventListener(moved, place, {passive: true});
