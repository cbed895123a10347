// The page of old code: what is typed hides all entries that do not have it.
for (const place of document.querySelectorAll(".today-filter")) {
  place.append(place.querySelector("template").content);
  const input = place.querySelector("input"), output = place.querySelector("output");
  const topics = [...document.querySelectorAll("section:has(> dl.today)")];
  const rows = topics.flatMap(topic => [...topic.querySelectorAll("dl.today > dt")].map(title => {
    const body = title.nextElementSibling;
    return {topic, parts: [title, body], text: `${title.textContent} ${body.textContent}`.toLowerCase()};
  }));
  const having = words => rows.filter(row => words.every(word => row.text.includes(word)));
  const filter = () => {
    const words = input.value.toLowerCase().split(/\s+/);
    let found = having(words);
    if (!found.length) found = having(words.map(word => word.split(".").pop()));  // from another module
    for (const row of rows) for (const part of row.parts) part.hidden = !found.includes(row);
    for (const topic of topics) topic.hidden = !found.some(row => row.topic === topic);
    output.textContent = input.value.trim() && place.dataset.found.replace("{n}", found.length);
  };
  input.addEventListener("input", event => event.isComposing || filter());
  input.addEventListener("compositionend", filter);  // Chinese is typed in Latin letters
  addEventListener("hashchange", () => {  // a link leads to an entry, found or not
    if (!document.getElementById(location.hash.slice(1))?.closest("[hidden]")) return;
    input.value = "";
    filter();
    document.getElementById(location.hash.slice(1)).scrollIntoView();
  });
}
