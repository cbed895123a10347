// Search: a dialog on every page, which search-open.js loads and opens, and the page search.html?q=…
// search.py makes the index; a piece of it is loaded when a query needs it.
{
const root = new URL("..", document.currentScript.src);  // of the site, above _static
const SHOWN = 10, LENGTH = 180, BEFORE = 30, PASTED = 60;  // results; of an excerpt; before its first mark; what is longer is spelt right, word for word
const NAME = 2, PART = .5, ALIKE = .6, ORDER = 1, VERBATIM = 4;  // weights: a name, its part, another name, the order; of what was pasted

// -- pieces: scripts, as a page from the disk may load nothing else

const asked = new Map(), arrive = {};
const policy = window.trustedTypes?.createPolicy("search", {createScriptURL: url => url});
let folder = "";
window.searchPiece = (name, content) => arrive[name](content);
const piece = name => {
  if (!asked.has(name)) asked.set(name, new Promise((resolve, reject) => {
    const script = document.createElement("script"), url = new URL(`search/${folder}${name}.js`, root).href;
    arrive[name] = resolve;
    script.onerror = () => { asked.delete(name); reject(new Error(url)); };
    script.src = policy?.createScriptURL(url) ?? url;
    document.head.append(script);
  }));
  return asked.get(name);
};
const theIndex = () => piece("index").then(index => (folder = index.folder + "/", index));

// -- terms: as search.py makes them, each with its place

const HAN = "\u3400", LATIN = "[\\w\u00c0-\u024f\u0370-\u03ff]+";
const RUN = new RegExp(`[${HAN}-\u9fff]+|\\b[Cc]\\+\\+|\\.?${LATIN}(?:\\.${LATIN})*`, "g");
const PARTS = /_+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/;
const ENDING = /^(.{3,}?)(?:at(?:e[ds]?|ions?|ors?|ing)|ions?|ings?|ments?|able|ly|e(?:d|s|rs?)?|s)$/;
const stem = word => word.replace(ENDING, "$1").replace(/(.)\1$/, "$1");
function* terms(text) {
  for (const {0: run, index: at} of text.matchAll(RUN)) {
    if (run >= HAN)
      for (let i = 0; i < Math.max(1, run.length - 1); i++) yield [run.slice(i, i + 2), at + i];
    else if (/^\.?\d/.test(run)) {
      if (run.length <= 4) yield [run, at];
    } else yield* code(run, at);
  }
}
function* code(run, at) {
  const share = run.indexOf(".") > 0 ? PART : 1;
  let i = 0;
  for (const name of run.split(".")) {
    const lower = name.toLowerCase(), parts = name.split(PARTS).filter(part => part);
    if (name && i + name.length < run.length) yield [run.slice(i).toLowerCase(), at + i, run.length - i, i ? PART : NAME];
    if (i) yield ["." + lower, at + i - 1, lower.length + 1, share];
    if (parts.length > 1) yield [lower, at + i, lower.length, NAME * share];
    let j = 0;
    for (const part of parts) {
      j = name.indexOf(part, j);
      if (part.length > 1) yield [stem(part.toLowerCase()), at + i + j, part.length, parts.length > 1 ? PART : share];
      j += part.length;
    }
    i += name.length + 1;
  }
}

// -- ranking: what search.py left of BM25

// Whether `most` letters wrong, missing, too many or swapped make one word of the other.
const alike = (a, b, most) => {
  let i = 0;
  while (i < a.length && a[i] === b[i]) i++;
  if (i === a.length && i === b.length) return true;
  const rest = (m, n) => alike(a.slice(i + m), b.slice(i + n), most - 1);
  return most > 0 && (rest(1, 0) || rest(0, 1) || rest(1, 1) || a[i] === b[i + 1] && a[i + 1] === b[i] && rest(2, 2));
};
const meant = async term => {
  const words = await piece("words"), found = [];  // by their length
  for (let most = 1; !found.length && most <= (term.length < 8 ? 1 : 2); most++)
    for (let n = term.length - most; n <= term.length + most; n++)
      found.push(...words[n]?.split(" ").filter(word => alike(term, word, most)) ?? []);
  return found;
};
// The sections that have a term; else one that it begins, if unfinished; else one alike.
const find = async (index, {term, factor, typed, unfinished}) => {
  const where = t => Math.max(0, index.terms.findLastIndex(first => first <= t));
  const postings = t => piece(`terms-${where(t)}`).then(terms => Object.hasOwn(terms, t) ? terms[t] : "");
  let names = await postings(term) ? [term] : [];
  if (!names.length && unfinished && (term.length > 1 || term >= HAN))
    for (let i = where(term); i <= where(term + "\uffff"); i++)
      names.push(...Object.keys(await piece(`terms-${i}`)).filter(t => t.startsWith(term)));
  if (!names.length && typed && /^[a-z]{4,}$/.test(term)) names = await meant(term);
  const levels = new Map();
  for (const name of names) {
    let section = 0;
    for (const [, step, level] of (await postings(name)).matchAll(/([0-9a-v]*)([A-Z])/g)) {
      section += parseInt(step || 0, 32);
      levels.set(section, Math.max(levels.get(section) ?? 0, level.charCodeAt() - 64));
    }
  }
  const idf = factor * Math.log(1 + (index.sections - levels.size + .5) / (levels.size + .5));
  return {names, levels, idf};
};
// The terms of a query, and the book's names for what they say.
const wanted = (index, text) => {
  const end = text.search(/[^\s.]*$/), typed = text.length < PASTED, found = new Map();
  for (const [term, at, , factor = 1] of terms(text)) found.set(term, {term, factor, typed, unfinished: at >= end});
  const same = index.same.filter(([theirs]) => theirs.every(term => found.has(term)));
  for (const term of same.flatMap(([, ours]) => ours))
    if (!found.has(term)) found.set(term, {term, factor: ALIKE * (/[._]/.test(term) ? NAME : 1)});
  return [...found.values()];
};
function* neighbours(text) {
  const words = text.toLowerCase().match(RUN) ?? [];
  for (let i = 1; i < words.length; i++) yield `${words[i - 1]} ${words[i]}`;
}
const search = async query => {
  const index = await theIndex(), whole = query.normalize("NFKC"), scores = new Map(), marks = new Map();
  const telling = whole.replace(new RegExp(index.empty, "gi"), " "), text = telling.match(RUN) ? telling : whole;
  for (const {names, levels, idf} of await Promise.all(wanted(index, text).map(each => find(index, each)))) {
    for (const name of names) marks.set(name, idf);
    for (const [section, level] of levels) scores.set(section, (scores.get(section) ?? 0) + idf * level);
  }
  const pairs = [...new Set(neighbours(text))], order = text.length < PASTED ? ORDER : VERBATIM, least = Math.max(...scores.values()) / 4;
  const best = [...scores].filter(([, score]) => score >= least).sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  const results = await Promise.all(best.slice(0, SHOWN).map(async ([section, score]) => {
    const page = index.pages.findLastIndex(first => first <= section);
    const [url, name, sections] = await piece(`page-${page}`);
    const [anchor, title, content] = sections[section - index.pages[page]];
    const here = new Set(neighbours(`${title} ${content}`));
    score *= 1 + order * pairs.filter(pair => here.has(pair)).length / Math.max(4, pairs.length);
    return {score, url: `${url}#${anchor}`, name, title, content};
  }));
  return {count: best.length, marks, results: results.sort((a, b) => b.score - a.score)};
};

// -- what the reader sees: text nodes alone

const make = (tag, attributes, ...children) => {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const matches = (text, marks) => [...terms(text)].filter(([term]) => marks.has(term))
  .map(([term, at, length]) => ({at, end: at + (length ?? term.length), term}));
const marked = (text, found, from = 0, to = text.length) => {
  const parts = [];
  let mark;
  for (const {at, end} of found) {
    if (end <= from || end > to) continue;
    if (!mark || at > from) parts.push(text.slice(from, at), mark = make("mark", {}));
    mark.append(text.slice(Math.max(from, at), end));
    from = end;
  }
  return [...parts, text.slice(from, to)];
};
// The stretch of a text that has most of what was asked for, marked.
const excerpt = (text, marks) => {
  const found = matches(text, marks);
  let best = 0, from = 0;
  found.forEach(({at}, i) => {
    const here = new Set();
    for (let j = i; j < found.length && found[j].end <= at + LENGTH - BEFORE; j++) here.add(found[j].term);
    const sum = [...here].reduce((s, term) => s + marks.get(term), 0);
    if (sum > best) { best = sum; from = at; }
  });
  from = from > BEFORE ? from - BEFORE + text.slice(from - BEFORE, from).search(/(?<=[\s，。：；、])|$/) : 0;
  const to = from + LENGTH;
  return [from ? "…" : "", ...marked(text, found, from, Math.min(to, text.length)), to < text.length ? "…" : ""];
};

// -- the box: in search.html, elsewhere in a dialog

const words = document.querySelector("button.search-open")?.dataset ?? {};
const inPage = document.querySelector(".search-page");
const list = make("div", {class: "search-results", role: "listbox", id: "search-results", "aria-label": words.label});
const status = make("p", {class: "search-status", role: "status"});
const input = make("input", {
  class: "search-input", role: "combobox", "aria-label": words.label, placeholder: words.label,
  "aria-controls": list.id, "aria-expanded": false, "aria-autocomplete": "list",
  autocomplete: "off", spellcheck: false, enterkeyhint: "search",
});
const box = make("div", {class: "search-box"}, input, status, list);
let turn = 0, active = -1, shown = "";
const choose = i => {
  list.children[active]?.setAttribute("aria-selected", false);
  const option = list.children[active = i];
  option?.setAttribute("aria-selected", true);
  option?.scrollIntoView({block: "nearest"});
  input.setAttribute("aria-activedescendant", option?.id ?? "");
};
const show = async () => {
  const query = input.value.trim(), mine = ++turn;
  if (inPage) history.replaceState(null, "", "?q=" + encodeURIComponent(query));
  let answer = {results: []}, said = "";
  if (query) try {
    answer = await search(query);
    said = answer.count ? words.found.replace("{n}", answer.count) : words.none;
  } catch (error) { said = words.failed; reportError(error); }
  if (mine !== turn) return;  // more was typed meanwhile
  shown = query;
  list.replaceChildren(...answer.results.map(({url, name, title, content}, i) => make("a",
    {class: "search-result", role: "option", id: `search-${i}`, tabindex: -1, "aria-selected": false, href: new URL(url, root)},
    make("span", {class: "search-where"}, name === title ? "" : `${name} › `, ...marked(title, matches(title, answer.marks))),
    make("span", {class: "search-excerpt"}, ...excerpt(content, answer.marks)))));
  status.textContent = said;
  input.setAttribute("aria-expanded", list.children.length > 0);
  choose(-1);
  list.scrollTop = 0;
  box.dispatchEvent(new Event("searched"));
};
input.addEventListener("input", event => event.isComposing || show());
input.addEventListener("compositionend", show);  // Chinese is typed in Latin letters
input.addEventListener("keydown", async event => {
  const step = {ArrowDown: 1, ArrowUp: -1, Enter: 0}[event.key];
  if (event.isComposing || step === undefined) return;
  event.preventDefault();
  if (shown !== input.value.trim()) await show();  // the key is for the results of what was typed
  const n = list.children.length;
  if (step) return choose((Math.max(active, step < 0 ? 0 : -1) + step + n) % n);
  list.children[Math.max(0, active)]?.click();
});

let dialog;
const open = () => {
  if (!inPage && !dialog) {
    const close = make("button", {class: "search-close", type: "button", "aria-label": words.close}, "×");
    dialog = make("dialog", {class: "search-dialog", "aria-label": words.label}, box, close);
    dialog.addEventListener("click", ({target}) => (target === dialog || target.closest("a, .search-close")) && dialog.close());
    document.body.append(dialog);
  }
  if (!dialog?.open) dialog?.showModal();
  input.focus();
  input.select();
  theIndex().catch(() => {});
};
if (inPage) {
  inPage.append(box);
  input.value = new URLSearchParams(location.search).get("q") ?? "";
  open();
  show();
}
window.openSearch = open;
}
