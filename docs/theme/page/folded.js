// Paper cannot be clicked: what is folded is printed open, where the style sheet alone cannot do it.
if (!CSS.supports("selector(::details-content)")) {
  const opened = [];
  addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details.folded:not([open])"))
      each.open = opened.push(each) > 0;
  });
  addEventListener("afterprint", () => { while (opened.length) opened.pop().open = false; });
}
