// What belongs together lights up together, in any picture: elements with data-e are the thing,
// data-g covers it, data-o is a piece of it. By mouse, by touch and by keyboard.
(() => {
  if (window.seejax) return;
  window.seejax = 1;
  const set = (el, key) => (el.dataset[key] || "").split(" ").filter(Boolean);
  // A module, data-m, covers ranges: "3-90 120".
  const ranges = (el) => set(el, "m").map((range) => range.split("-").map(Number));
  const numbers = (el) => ranges(el).flatMap(([from, to = from]) =>
    Array.from({ length: to - from + 1 }, (_, i) => String(from + i)));
  const all = (el) => [...set(el, "e"), ...set(el, "g"), ...numbers(el)];
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
    for (const details of root.querySelectorAll("details:not([data-m])"))
      details.firstChild.classList.toggle("see-on", !!details.querySelector("[tabindex].see-on"));
    reveal(root, from);
  };
  const spot = (event) => {
    const root = home(event.target);
    return [root, root && event.target.closest("[data-e], [data-m]")];
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
    if (at && at.dataset.m) return;  // a module opens and closes
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

  // Search: the lines that have the words, the modules that are called so with all their lines,
  // and the modules that a line is in. The source stays whole and is lit.
  const search = (root, text) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const has = (string) => words.every((word) => string.toLowerCase().includes(word));
    const modules = [...root.querySelectorAll("[data-m]")];
    const panes = [...root.querySelectorAll(".see-pane")];
    const chosen = words.length ? modules.filter((el) => has(el.dataset.p)) : [];
    const wanted = new Set(chosen.flatMap(numbers)), met = new Set(wanted);
    const searched = panes.slice(1).flatMap((p) => [...p.querySelectorAll(".see-l, .see-gap")]);
    let found = 0;
    clear(root);
    pinned = null;
    for (const el of searched) {
      const named = words.length > 0 && has(el.textContent);
      const own = set(el, "e");
      const inside = own.some((i) => wanted.has(i));
      const shown = !words.length || named || inside;
      if (named && !chosen.length) own.forEach((i) => met.add(i));
      el.hidden = !shown;
      found += shown;
    }
    for (const details of root.querySelectorAll(".see-pane:not(:first-child) details"))
      if (words.length) details.open = true;
    const sorted = [...met].map(Number).sort((a, b) => a - b);
    const any = ([from, to = from]) => {
      let low = 0, high = sorted.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (sorted[middle] < from) low = middle + 1;
        else high = middle;
      }
      return sorted[low] <= to;
    };
    const inside = new Set(chosen.flatMap((el) => [el, ...el.querySelectorAll("[data-m]")]));
    for (const el of modules) {
      const around = chosen.some((other) => el.contains(other));
      const shown = chosen.length ? inside.has(el) || around : ranges(el).some(any);
      el.hidden = words.length > 0 && !shown;
      if (words.length && around && !chosen.includes(el)) el.open = true;
      el.classList.toggle("see-on", chosen.includes(el));
    }
    if (words.length && panes.length)
      for (const el of panes[0].querySelectorAll(".see-l"))
        if (set(el, "e").some((i) => met.has(i))) el.classList.add("see-on");
    const status = root.querySelector(".see-found");
    status.hidden = !words.length;
    status.firstChild.textContent = found;
    const first = panes.length && panes[0].querySelector(".see-on");
    if (first) panes[0].querySelector(".see-code").scrollTop = first.offsetTop - 40;
  };
  const prepare = () => {
    for (const find of document.querySelectorAll(".see-find[hidden]")) {
      const root = home(find), input = find.querySelector("input");
      find.hidden = false;
      let waiting = 0;
      input.addEventListener("input", () => {
        clearTimeout(waiting);
        waiting = setTimeout(() => search(root, input.value), 120);
      });
      input.addEventListener("keydown", (event) => {
        if (event.key !== "Escape" || !input.value) return;
        event.preventDefault();
        input.value = "";
        search(root, "");
      });
      for (const el of root.querySelectorAll("[data-m]")) {
        if (!el.dataset.p) continue;
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = "⌕";
        button.ariaLabel = `${root.querySelector(".see-find label").innerText.trim()} ${el.dataset.p}`;
        button.addEventListener("click", (event) => {
          event.preventDefault();
          input.value = input.value === el.dataset.p ? "" : el.dataset.p;
          search(root, input.value);
        });
        el.firstElementChild.append(button);
      }
    }
  };
  prepare();
  document.addEventListener("DOMContentLoaded", prepare);
  new MutationObserver(prepare).observe(document.documentElement, { childList: true, subtree: true });

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
