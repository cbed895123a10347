"""The built site as tests look at it: its pages, and a browser that hears what goes wrong."""

import functools
import os

from bs4 import BeautifulSoup
from playwright.sync_api import Browser, BrowserContext, Page

from book import paths

ROOT = paths.ROOT
SITE = paths.BUILD / "html"
LANGUAGES = {language: names["hreflang"] for language, names in paths.LANGUAGES.items()}
ONLY = os.environ.get("SEEJAX_PAGE")  # make check PAGE=jit
SOURCES = {
    language: [
        name
        for page in paths.pages(language)
        if (name := paths.page_name(page, language)) == ONLY or not ONLY
    ]
    for language in LANGUAGES
}
PAGES = [f"{language}/{name}.html" for language in LANGUAGES for name in SOURCES[language]]
# One page of each kind: all share one frame, and what is asked of that is asked of these.
KINDS = (
    "index",
    "tour",
    "jit",
    "see",
    "linear-regression",
    "errors",
    "today",
    "terms",
    "api",
    "about",
)
SAMPLE = [page for page in PAGES if ONLY or page[3:].removesuffix(".html") in KINDS]
WIDTHS = {"phone": 375, "desk": 1440}


# What moves sideways, and words that are hard to read.
OVERFLOW = """() => {
  const wide = document.documentElement.scrollWidth, seen = document.documentElement.clientWidth;
  const out = [...document.querySelectorAll("body *")].filter(e => {
    const r = e.getBoundingClientRect();
    return r.width && r.right > seen + 1 && getComputedStyle(e).position != "fixed";
  });
  const which = out.slice(0, 3).map(e => e.outerHTML.slice(0, 80));
  return wide > seen ? `${wide} > ${seen}: ${which}` : "";
}"""

# Contrast as WCAG 2 defines it, of every word that is shown, over what lies under it.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const once = f => { // a page has thousands of words, and few colours
    const known = new Map();
    return x => { if (!known.has(x)) known.set(x, f(x)); return known.get(x); };
  };
  const rgba = once(css => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  });
  const over = ([r, g, b, a], under) => [r, g, b].map((c, i) => c * a + under[i] * (1 - a));
  const light = c => c.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = once(e => e
    ? over(rgba(getComputedStyle(e).backgroundColor), ground(e.parentElement))
    : matchMedia("(prefers-color-scheme: dark)").matches ? [0, 0, 0] : [255, 255, 255]);
  document.getAnimations().forEach(each => each.finish());
  const poor = new Map();
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (words.nextNode()) {
    const e = words.currentNode.parentElement, style = getComputedStyle(e);
    if (!words.currentNode.data.trim() || !e.checkVisibility({visibilityProperty: true})) continue;
    if (!e.getBoundingClientRect().width) continue;
    if (e.closest("svg, [aria-hidden=true], :disabled")) continue;
    const under = ground(e), a = light(over(rgba(style.color), under)), b = light(under);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5))
      poor.set(`${e.tagName}.${e.className} ${style.color} on ${under.map(Math.round)}`,
        `${ratio.toFixed(2)} ${words.currentNode.data.trim().slice(0, 30)}`);
  }
  return [...poor].map(([what, ratio]) => `${ratio} — ${what}`);
}"""


@functools.cache
def soup(path: str) -> BeautifulSoup:
    return BeautifulSoup((SITE / path).read_text("utf8"), "html.parser")


@functools.cache
def ids(path: str) -> set[str]:
    return {tag["id"] for tag in soup(path).find_all(id=True)}


class Reader:
    """A reader's browser, and what went wrong in it."""

    def __init__(self, browser: Browser, home: str, **options: object) -> None:
        self.context: BrowserContext = browser.new_context(**options)
        self.context.set_default_timeout(60_000)
        self.home = home
        self.ignored = {"net::ERR_ABORTED"}  # the reader went on before it had come
        if options.get("java_script_enabled") is False:
            self.ignored.add("csp")  # a script was announced, and is not taken
        self.wrong: list[str] = []
        self.page: Page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.note(f"error: {error}"))
        self.page.on("console", self.heard)
        self.page.on("requestfailed", self.failed)
        self.page.on("response", lambda r: r.status < 400 or self.note(f"no {r.url}"))
        self.context.route("**/*", self.asked)

    def note(self, what: str) -> None:
        self.wrong.append(f"{self.at}: {what}")

    def heard(self, message) -> None:
        if message.type in ("error", "warning"):
            self.note(f"console {message.type}: {message.text}")

    def failed(self, request) -> None:
        if request.failure not in self.ignored:
            self.note(f"{request.failure}: {request.url}")

    def asked(self, route) -> None:
        url = route.request.url
        if url.startswith((f"{self.home}/", "data:", "blob:")):
            route.continue_()
        else:
            self.note(f"it asked for {url}")
            route.abort()

    def open(self, path: str) -> Page:
        self.page.goto(f"{self.home}/{path}")
        return self.page

    def switch(self) -> None:
        """Click the language switch with the mouse: where it is, without scrolling to it."""
        box = self.page.locator("a.language-switch").first.bounding_box()
        self.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    @property
    def at(self) -> str:
        return self.page.url.removeprefix(f"{self.home}/")
