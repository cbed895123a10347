// Search: a dialog on every page, which search-open.js loads and opens, and the page search.html?q=…
// search.py makes the index; a piece of it is loaded when a query needs it.
"use strict";  // or the functions of the block would be names of the whole page
{
const root = new URL("..", document.currentScript.src);  // of the site, above _static

// -- pieces of the index: scripts, as a page from the disk may load nothing else -----------------

const requested = new Map();  // a promise of each piece
const resolvers = new Map();  // what to call when it has come
const policy = window.trustedTypes?.createPolicy("search", {createScriptURL: url => url});
let folder = "";  // of all pieces but the index, which names it

window.searchPiece = (name, content) => resolvers.get(name)(content);

function piece(name) {
  if (!requested.has(name)) requested.set(name, new Promise((resolve, reject) => {
    const script = document.createElement("script");
    const url = new URL(`search/${folder}${name}.js`, root).href;
    resolvers.set(name, resolve);
    script.onerror = () => {
      requested.delete(name);  // the next query asks again
      reject(new Error(url));
    };
    script.src = policy?.createScriptURL(url) ?? url;
    document.head.append(script);
  }));
  return requested.get(name);
}

async function loadIndex() {
  const index = await piece("index");
  folder = `${index.folder}/`;
  return index;
}

// -- terms: as search.py makes them, each with its place in the text -----------------------------

const HAN = "\u3400";  // the first Chinese character: a run that is not less is Chinese
const LATIN = "[\\w\u00c0-\u024f\u0370-\u03ff]+";
const RUN = new RegExp(`[${HAN}-\u9fff]+|\\b[Cc]\\+\\+|\\.?${LATIN}(?:\\.${LATIN})*`, "g");
const PARTS = /_+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/;
const ENDING = /^(.{3,}?)(?:at(?:e[ds]?|ions?|ors?|ing)|ions?|ings?|ments?|able|ly|e(?:d|s|rs?)?|s)$/;
const NAME = 2, PART = .5;  // what a name of several parts counts, and what each of them

const isChinese = term => term >= HAN;
const stem = word => word.replace(ENDING, "$1").replace(/(.)\1$/, "$1");

function* termsOf(text) {
  for (const {0: run, index: at} of text.matchAll(RUN)) {
    if (isChinese(run)) yield* pairsOfCharacters(run, at);
    else if (!/^\.?\d/.test(run)) yield* termsOfCode(run, at);
    else if (run.length <= 4) yield {term: run, at, length: run.length, share: 1};
  }
}

function* pairsOfCharacters(run, at) {
  for (let i = 0; i < Math.max(1, run.length - 1); i++) {
    const term = run.slice(i, i + 2);
    yield {term, at: at + i, length: term.length, share: 1};
  }
}

// Of lax.scan: lax.scan, lax, .scan, scan; a word is code of one part.
function* termsOfCode(run, at) {
  const whole = run.indexOf(".") > 0 ? PART : 1;
  let i = 0;
  for (const name of run.split(".")) {
    const lower = name.toLowerCase();
    const words = name.split(PARTS).filter(word => word);
    if (name && i + name.length < run.length)
      yield {term: run.slice(i).toLowerCase(), at: at + i, length: run.length - i, share: i ? PART : NAME};
    if (i) yield {term: "." + lower, at: at + i - 1, length: lower.length + 1, share: whole};
    if (words.length > 1) yield {term: lower, at: at + i, length: lower.length, share: NAME * whole};
    let j = 0;
    for (const word of words) {
      j = name.indexOf(word, j);
      const share = words.length > 1 ? PART : whole;
      if (word.length > 1) yield {term: stem(word.toLowerCase()), at: at + i + j, length: word.length, share};
      j += word.length;
    }
    i += name.length + 1;
  }
}

// -- what is wanted: the terms of a query, and the book's names for what they say ----------------

const PASTED = 60;  // characters: what is longer was pasted, and is spelt right, word for word
const SYNONYM = .6, FAINT = .5;  // what another name counts, and a word that says little

function wantedTerms(index, text) {
  const lastWord = text.search(/[^\s.]*$/);  // perhaps not typed to its end
  const typed = text.length < PASTED;
  const faint = new Set(index.faint);
  const saysLittle = term => isChinese(term) ? [...term].some(character => faint.has(character)) : faint.has(term);
  const wanted = new Map();
  for (const {term, at, share} of termsOf(text)) {
    const weight = share * (typed && saysLittle(term) ? FAINT : 1);
    wanted.set(term, {term, weight, typed, unfinished: at >= lastWord});
  }
  const said = index.same.filter(([theirs]) => theirs.every(term => wanted.has(term)));
  for (const term of said.flatMap(([, ours]) => ours))
    if (!wanted.has(term)) wanted.set(term, {term, weight: SYNONYM * (/[._]/.test(term) ? NAME : 1)});
  return [...wanted.values()];
}

// Whether at most so many letters wrong, missing, too many or swapped make one word of the other.
function isAlike(a, b, most) {
  let i = 0;
  while (i < a.length && a[i] === b[i]) i++;
  if (i === a.length && i === b.length) return true;
  if (most === 0) return false;
  const restIsAlike = (ofA, ofB) => isAlike(a.slice(i + ofA), b.slice(i + ofB), most - 1);
  const swapped = a[i] === b[i + 1] && a[i + 1] === b[i];
  return restIsAlike(1, 0) || restIsAlike(0, 1) || restIsAlike(1, 1) || swapped && restIsAlike(2, 2);
}

async function spelledAlike(word) {
  const byLength = await piece("words");
  const furthest = word.length < 8 ? 1 : 2;
  for (let most = 1; most <= furthest; most++) {
    const found = [];
    for (let length = word.length - most; length <= word.length + most; length++)
      for (const other of byLength[length]?.split(" ") ?? [])
        if (isAlike(word, other, most)) found.push(other);
    if (found.length) return found;
  }
  return [];
}

// -- ranking: what search.py left of BM25 --------------------------------------------------------

const SHOWN = 10;  // results
const ORDER = 1, VERBATIM = 4;  // what the order of words counts, and of what was pasted
const MESSAGE = 30;  // characters: what is shorter is no message of an error
const GAP = 400;  // characters, at most, that "…" stands for in one

const termsPiece = (index, term) => Math.max(0, index.terms.findLastIndex(first => first <= term));

async function postings(index, term) {
  const found = await piece(`terms-${termsPiece(index, term)}`);
  return Object.hasOwn(found, term) ? found[term] : "";
}

async function beginningWith(index, start) {
  const found = [];
  for (let i = termsPiece(index, start); i <= termsPiece(index, start + "\uffff"); i++)
    found.push(...Object.keys(await piece(`terms-${i}`)).filter(term => term.startsWith(start)));
  return found;
}

// A term of the book; else those that it begins, if it is unfinished; else those spelled alike.
async function termsOfBook(index, {term, typed, unfinished}) {
  if (await postings(index, term)) return [term];
  if (unfinished && (term.length > 1 || isChinese(term))) {
    const found = await beginningWith(index, term);
    if (found.length) return found;
  }
  return typed && /^[a-z]{4,}$/.test(term) ? spelledAlike(term) : [];
}

// The sections that say what is wanted, each with how much (1 to 26), and what that is worth.
async function look(index, wanted) {
  const terms = await termsOfBook(index, wanted);
  const levels = new Map();
  for (const term of terms) {
    let section = 0;
    for (const [, step, letter] of (await postings(index, term)).matchAll(/([0-9a-v]*)([A-Z])/g)) {
      section += parseInt(step || 0, 32);
      const level = letter.charCodeAt() - "A".charCodeAt() + 1;
      levels.set(section, Math.max(levels.get(section) ?? 0, level));
    }
  }
  const rarity = Math.log(1 + (index.sections - levels.size + .5) / (levels.size + .5));
  return {terms, levels, worth: wanted.weight * rarity};
}

function neighbours(text) {
  const words = text.toLowerCase().match(RUN) ?? [];
  return new Set(words.slice(1).map((word, i) => `${words[i]} ${word}`));
}

// The section of the error or the warning whose message was pasted: of errors the last, for it ended
// the program, of warnings the first; of several that begin at one place, the one that says most.
async function sectionOfMessage(query) {
  if (query.length < MESSAGE) return undefined;
  const {error, warning} = await piece("messages");
  const places = known => known.map(([begins, section]) => {
    const parts = begins.split("…").map(part => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    const at = query.search(new RegExp(`(?<!\\w)${parts.join(`.{0,${GAP}}?`)}`));
    return {at, section, length: begins.length};
  }).filter(({at}) => at >= 0);
  const last = places(error).sort((a, b) => b.at - a.at || b.length - a.length)[0];
  const first = places(warning).sort((a, b) => a.at - b.at || b.length - a.length)[0];
  return (last ?? first)?.section;
}

async function readSection(index, section) {
  const page = index.pages.findLastIndex(first => first <= section);
  const [url, name, sections] = await piece(`page-${page}`);
  const [anchor, title, content] = sections[section - index.pages[page]];
  return {url: `${url}#${anchor}`, name, title, content};
}

function withoutEmptyWords(index, query) {
  const telling = query.replace(new RegExp(index.empty, "gi"), " ");
  return telling.match(RUN) ? telling : query;
}

async function search(query) {
  const index = await loadIndex();
  const text = withoutEmptyWords(index, query.normalize("NFKC"));
  const scores = new Map();  // by section
  const marks = new Map();  // what each term to mark is worth
  for (const {terms, levels, worth} of await Promise.all(wantedTerms(index, text).map(each => look(index, each)))) {
    for (const term of terms) marks.set(term, worth);
    for (const [section, level] of levels) scores.set(section, (scores.get(section) ?? 0) + worth * level);
  }
  const named = await sectionOfMessage(query.replace(/\s+/g, " "));
  if (named !== undefined) scores.set(named, Infinity);
  const least = Math.max(...[...scores.values()].filter(Number.isFinite)) / 4;
  const best = [...scores].filter(([, score]) => score >= least).sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  const pairs = [...neighbours(text)];
  const order = (text.length < PASTED ? ORDER : VERBATIM) / Math.max(4, pairs.length);
  const results = await Promise.all(best.slice(0, SHOWN).map(async ([section, score]) => {
    const result = await readSection(index, section);
    const there = neighbours(`${result.title} ${result.content}`);
    const inOrder = pairs.filter(pair => there.has(pair)).length;
    return {...result, score: score * (1 + order * inOrder)};
  }));
  return {count: best.length, marks, results: results.sort((a, b) => b.score - a.score)};
}

// -- what the reader sees: text nodes alone, whatever was typed ----------------------------------

const EXCERPT = 180, BEFORE = 30;  // characters: of an excerpt, and of it before its first mark

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const findMarks = (text, marks) => [...termsOf(text)]
  .filter(({term}) => marks.has(term))
  .map(({term, at, length}) => ({term, at, end: at + length}));

// A stretch of a text as nodes; marks that meet or overlap are one.
function marked(text, found, from = 0, to = text.length) {
  const nodes = [];
  let mark;
  for (const {at, end} of found) {
    if (end <= from || end > to) continue;
    if (!mark || at > from) {
      mark = make("mark", {});
      nodes.push(text.slice(from, at), mark);
    }
    mark.append(text.slice(Math.max(from, at), end));
    from = end;
  }
  return [...nodes, text.slice(from, to)];
}

// Where the stretch begins that says most of what is wanted.
function bestStart(found, marks) {
  let most = 0, start = 0;
  found.forEach(({at}, i) => {
    const here = new Set();
    for (let j = i; j < found.length && found[j].end <= at + EXCERPT - BEFORE; j++) here.add(found[j].term);
    const worth = [...here].reduce((sum, term) => sum + marks.get(term), 0);
    if (worth > most) {
      most = worth;
      start = at;
    }
  });
  return start;
}

function excerpt(text, marks) {
  const found = findMarks(text, marks), start = bestStart(found, marks);
  const before = text.slice(start - BEFORE, start);
  const from = start > BEFORE ? start - BEFORE + before.search(/(?<=[\s，。：；、])|$/) : 0;  // a word whole
  const to = from + EXCERPT;
  const stretch = marked(text, found, from, Math.min(to, text.length));
  return [from ? "…" : "", ...stretch, to < text.length ? "…" : ""];
}

function option({url, name, title, content}, i, marks) {
  const attributes = {
    class: "search-result", role: "option", id: `search-${i}`, href: new URL(url, root),
    tabindex: -1, "aria-selected": false,
  };
  const page = name === title ? "" : `${name} › `;
  return make("a", attributes,
    make("span", {class: "search-where"}, page, ...marked(title, findMarks(title, marks))),
    make("span", {class: "search-excerpt"}, ...excerpt(content, marks)));
}

// -- the box: in search.html, elsewhere in a dialog ----------------------------------------------

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
let turn = 0;  // of the last query
let active = -1;  // the option that is chosen
let shown = "";  // the query whose results are seen

function choose(i) {
  list.children[active]?.setAttribute("aria-selected", false);
  active = i;
  const chosen = list.children[i];
  chosen?.setAttribute("aria-selected", true);
  chosen?.scrollIntoView({block: "nearest"});
  input.setAttribute("aria-activedescendant", chosen?.id ?? "");
}

async function answer(query) {
  const nothing = {results: [], said: ""};
  if (!query) return nothing;
  try {
    const found = await search(query);
    return {...found, said: found.count ? words.found.replace("{n}", found.count) : words.none};
  } catch (error) {
    reportError(error);
    return {...nothing, said: words.failed};
  }
}

async function show() {
  const query = input.value.trim(), mine = ++turn;
  if (inPage) history.replaceState(null, "", "?q=" + encodeURIComponent(query));
  const {results, marks, said} = await answer(query);
  if (mine !== turn) return;  // more was typed meanwhile
  shown = query;
  list.replaceChildren(...results.map((result, i) => option(result, i, marks)));
  list.scrollTop = 0;
  status.textContent = said;
  input.setAttribute("aria-expanded", results.length > 0);
  choose(-1);
  box.dispatchEvent(new Event("searched"));
}

input.addEventListener("input", event => event.isComposing || show());
input.addEventListener("compositionend", show);  // Chinese is typed in Latin letters
input.addEventListener("keydown", async event => {
  const step = {ArrowDown: 1, ArrowUp: -1, Enter: 0}[event.key];
  if (event.isComposing || step === undefined) return;
  event.preventDefault();
  if (shown !== input.value.trim()) await show();  // the key is for the results of what was typed
  if (step === 0) return list.children[Math.max(0, active)]?.click();
  const count = list.children.length, from = active < 0 && step < 0 ? 0 : active;  // up from none: the last
  choose((from + step + count) % count);
});

let dialog;

function makeDialog() {
  const close = make("button", {class: "search-close", type: "button", "aria-label": words.close}, "×");
  const made = make("dialog", {class: "search-dialog", "aria-label": words.label}, box, close);
  made.addEventListener("click", ({target}) => {
    const outside = target === made;
    if (outside || target.closest("a, .search-close")) made.close();
  });
  document.body.append(made);
  return made;
}

function open() {
  if (!inPage) dialog ??= makeDialog();
  if (!dialog?.open) dialog?.showModal();
  input.focus();
  input.select();
  loadIndex().catch(() => {});  // a query says when it does not come
}

if (inPage) {
  inPage.append(box);
  input.value = new URLSearchParams(location.search).get("q") ?? "";
  open();
  show();
}
window.openSearch = open;
}
