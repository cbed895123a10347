// What belongs together lights up together, in any picture: elements with data-e are the thing,
// data-g covers it, data-o is a piece of it. By mouse, by touch and by keyboard.
(() => {
  if (window.seejax) return;
  window.seejax = 1;
  const set = (el, key) => (el.dataset[key] || "").split(" ").filter(Boolean);
  const all = (el) => [...set(el, "e"), ...set(el, "g")];
  const stops = ".see [data-e][tabindex], .see [data-g][tabindex]";
  const home = (el) => (el && el.closest ? el.closest(".see") : null);
  const pane = (el) => el.closest(".see-pane") || home(el);
  let pinned = null;

  const clear = (root) => {
    for (const el of root.querySelectorAll(".see-on, .see-in")) el.classList.remove("see-on", "see-in");
  };
  // Bring the first counterpart into sight inside its own pane; the page never moves.
  const reveal = (root, from) => {
    for (const code of root.querySelectorAll(".see-code")) {
      if (code.contains(from)) continue;
      const el = code.querySelector("[tabindex].see-on");
      if (!el) continue;
      const a = el.getBoundingClientRect(), b = code.getBoundingClientRect();
      if (!a.height) continue;
      if (a.top < b.top || a.bottom > b.bottom) code.scrollTop += a.top - b.top - b.height / 3;
    }
  };
  const light = (root, from) => {
    clear(root);
    const wanted = new Set(all(from));
    const some = (el, key) => set(el, key).some((i) => wanted.has(i));
    for (const el of root.querySelectorAll("[data-e], [data-g], [data-o]")) {
      const piece = !el.matches("[tabindex]") && some(el, "o");
      if (piece || some(el, "e")) el.classList.add("see-on");
      else if (some(el, "g")) el.classList.add("see-in");
    }
    (from.closest(stops) || from).classList.add("see-on");
    for (const details of root.querySelectorAll("details"))
      details.firstChild.classList.toggle("see-on", !!details.querySelector("[tabindex].see-on"));
    reveal(root, from);
  };
  const spot = (event) => {
    const root = home(event.target);
    return [root, root && event.target.closest("[data-e]")];
  };
  const leave = (event) => {
    const root = home(event.target);
    if (root && !pinned && !root.contains(event.relatedTarget)) clear(root);
  };

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType !== "mouse" || pinned) return;
    const [root, at] = spot(event);
    if (at) light(root, at);
  });
  document.addEventListener("pointerout", leave);
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
  document.addEventListener("focusin", (event) => {
    const root = home(event.target);
    if (root && event.target.matches(stops) && event.target.matches(":focus-visible")) {
      pinned = null;
      light(root, event.target);
    }
  });
  document.addEventListener("focusout", leave);

  const focus = (el) => {
    if (!el) return;
    for (const other of pane(el).querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    el.tabIndex = 0;
    const details = el.closest("details");
    if (details) details.open = true;
    el.focus();
  };
  document.addEventListener("keydown", (event) => {
    const root = home(event.target), at = event.target;
    if (!root || !at.matches(stops) || event.altKey || event.ctrlKey || event.metaKey) return;
    const lines = [...pane(at).querySelectorAll(stops)];
    const i = lines.indexOf(at);
    const beside = (step) => {
      const panes = [...root.querySelectorAll(".see-pane")];
      const wanted = new Set(all(at));
      for (let p = panes.indexOf(pane(at)) + step; panes[p]; p += step)
        for (const el of panes[p].querySelectorAll(stops))
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
