(() => {
  if (window.seejax) return;
  window.seejax = 1;
  const set = (el, key) => (el.dataset[key] || "").split(" ").filter(Boolean);
  const all = (el) => [...set(el, "e"), ...set(el, "g")];
  const line = (el) => el.closest(".see-l[tabindex]");
  const home = (el) => el && el.closest && el.closest(".see-trace");
  let pinned = null;

  const clear = (root) => {
    for (const el of root.querySelectorAll(".see-on,.see-in")) el.classList.remove("see-on", "see-in");
  };
  // Bring the first counterpart into sight inside its own pane; the page never moves.
  const reveal = (root, from) => {
    for (const code of root.querySelectorAll(".see-code")) {
      if (code.contains(from)) continue;
      const el = code.querySelector(".see-l.see-on");
      if (!el) continue;
      const a = el.getBoundingClientRect(), b = code.getBoundingClientRect();
      if (!a.height) continue;
      if (a.top < b.top || a.bottom > b.bottom) code.scrollTop += a.top - b.top - b.height / 3;
    }
  };
  const light = (root, from) => {
    clear(root);
    const wanted = new Set(all(from));
    const own = line(from);
    for (const el of root.querySelectorAll("[data-e],[data-g]")) {
      if (el.tagName === "SPAN" ? [...set(el, "e"), ...set(el, "o")].some((i) => wanted.has(i)) : set(el, "e").some((i) => wanted.has(i)))
        el.classList.add("see-on");
      else if (set(el, "g").some((i) => wanted.has(i))) el.classList.add("see-in");
    }
    own.classList.add("see-on");
    for (const details of root.querySelectorAll("details"))
      details.firstChild.classList.toggle("see-on", !!details.querySelector(".see-l.see-on"));
    reveal(root, from);
  };
  const spot = (event) => {
    const root = home(event.target);
    const at = root && event.target.closest("[data-e]");
    return at ? [root, at] : [root, null];
  };

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType !== "mouse" || pinned) return;
    const [root, at] = spot(event);
    if (at) light(root, at);
  });
  document.addEventListener("pointerout", (event) => {
    const root = home(event.target);
    if (root && !pinned && !root.contains(event.relatedTarget)) clear(root);
  });
  document.addEventListener("click", (event) => {
    const [root, at] = spot(event);
    if (pinned && (!root || !at || pinned === at)) {
      clear(home(pinned));
      pinned = null;
    } else if (at) {
      if (pinned) clear(home(pinned));
      pinned = at;
      light(root, at);
    }
  });
  const focus = (el) => {
    if (!el) return;
    const pane = el.closest(".see-pane");
    for (const other of pane.querySelectorAll('.see-l[tabindex="0"]')) other.tabIndex = -1;
    el.tabIndex = 0;
    const details = el.closest("details");
    if (details) details.open = true;
    el.focus();
  };
  document.addEventListener("focusin", (event) => {
    const root = home(event.target);
    if (root && event.target.matches(".see-l[tabindex]:focus-visible")) {
      pinned = null;
      light(root, event.target);
    }
  });
  document.addEventListener("focusout", (event) => {
    const root = home(event.target);
    if (root && !pinned && !root.contains(event.relatedTarget)) clear(root);
  });
  document.addEventListener("keydown", (event) => {
    const root = home(event.target);
    const at = root && line(event.target);
    if (!at || event.target !== at || event.altKey || event.ctrlKey || event.metaKey) return;
    const lines = [...at.closest(".see-pane").querySelectorAll(".see-l[tabindex]")];
    const i = lines.indexOf(at);
    const beside = (step) => {
      const panes = [...root.querySelectorAll(".see-pane")];
      const wanted = new Set(all(at));
      for (let p = panes.indexOf(at.closest(".see-pane")) + step; panes[p]; p += step)
        for (const el of panes[p].querySelectorAll(".see-l[tabindex]"))
          if (set(el, "e").some((n) => wanted.has(n))) return el;
      return null;
    };
    const keys = {
      ArrowDown: () => focus(lines[i + 1]),
      ArrowUp: () => focus(lines[i - 1]),
      Home: () => focus(lines[0]),
      End: () => focus(lines[lines.length - 1]),
      ArrowRight: () => focus(beside(1)),
      ArrowLeft: () => focus(beside(-1)),
      Escape: () => { pinned = null; clear(root); },
    };
    if (keys[event.key]) {
      event.preventDefault();
      keys[event.key]();
    }
  });
})();
