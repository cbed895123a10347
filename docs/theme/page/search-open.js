// The search comes when it is opened: by the button, "/" or Ctrl-K; on its own page at once.
const buttons = document.querySelectorAll("button.search-open");
const policy = window.trustedTypes?.createPolicy("search-open", {createScriptURL: url => url});
let asked = false;
const open = () => {
  if (window.openSearch) return window.openSearch();
  if (asked) return;
  asked = true;
  const script = document.createElement("script"), {src} = buttons[0].dataset;
  script.onload = () => document.querySelector(".search-page") || window.openSearch();
  script.onerror = () => { asked = false; };  // the next time, perhaps
  script.src = policy?.createScriptURL(src) ?? src;
  document.head.append(script);
};
for (const button of buttons) {
  button.hidden = false;
  button.addEventListener("click", open);
}
if (document.querySelector(".search-page")) open();
document.addEventListener("keydown", event => {
  const control = event.ctrlKey || event.metaKey, typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.altKey || !(control ? event.key?.toLowerCase() === "k" : event.key === "/" && !typing)) return;
  event.preventDefault();
  open();
});
