// Each cell of code, and each command for a shell, has a button that copies it: no prompt, no output.
{
  const {copy, copied} = document.querySelector("main").dataset;
  const places = ".cell_input pre, :is(.highlight-console, .highlight-bash) pre";
  const code = block => {
    const lines = block.textContent.trimEnd().split("\n"), typed = lines.filter(l => l.startsWith("$ "));
    return (typed.length ? typed.map(line => line.slice(2)) : lines).join("\n");
  };
  for (const block of navigator.clipboard ? document.querySelectorAll(places) : []) {  // not over http
    const button = document.createElement("button"), said = document.createElement("output");
    button.type = "button";
    button.className = "copy";
    button.textContent = copy;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(code(block));
      said.textContent = copied;  // seen, and read aloud
      setTimeout(() => said.textContent = "", 2000);
    });
    block.after(said, button);
  }
}
