// What the reader guessed first is kept on this device alone; the front page offers again what was
// wrong some days ago.
const KEY = "guesses", DAYS = 2;
let guesses = {};
try { guesses = JSON.parse(localStorage.getItem(KEY)) ?? {}; } catch { /* nothing is kept, then */ }

const page = location.pathname.replace(/.*\//, "").replace(/\.html$/, "") || "index";
for (const guess of document.querySelectorAll(".guess")) {
  const choices = [...guess.querySelectorAll("details")], place = `${page}#${choices[0].name}`;
  for (const choice of choices)
    choice.addEventListener("toggle", () => {
      if (!choice.open || guess.dataset.guessed) return;
      guess.dataset.guessed = choice.dataset.yours = guess.dataset.yours;
      const mark = document.createElement("small");
      mark.textContent = ` ← ${guess.dataset.yours}`;
      choice.querySelector("summary").append(mark);
      const right = choice.dataset.right !== undefined, title = document.querySelector("h1").firstChild.textContent;
      guesses[place] = {right, title, time: Date.now()};
      try { localStorage.setItem(KEY, JSON.stringify(guesses)); } catch { /* as above */ }
    });
}

const again = document.querySelector(".guess-again"), late = Date.now() - DAYS * 864e5;
const wrong = Object.entries(guesses).filter(([, each]) => !each.right && each.time < late);
if (again && wrong.length) {
  again.append(...wrong.flatMap(([place, {title}], n) => {
    const link = document.createElement("a");
    link.href = place.replace("#", ".html#");
    link.textContent = title;
    return n ? [" · ", link] : [" ", link];
  }));
  again.hidden = false;
}
