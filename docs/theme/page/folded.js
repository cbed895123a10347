// Paper cannot be clicked: what is folded is printed open, where the style sheet alone cannot do it.
if (!CSS.supports("selector(::details-content)")) {
  const opened = [];
  addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details:is(.folded, .choice):not([open])"))
      each.open = opened.push(each) > 0;
  });
  addEventListener("afterprint", () => { while (opened.length) opened.pop().open = false; });
}
// A link to fine print opens it, where the browser does not.
function openFold() {
  const fold = document.getElementById(location.hash.slice(1));
  if (fold?.matches("details.fine")) fold.open = true;
}
addEventListener("hashchange", openFold);
openFold();
