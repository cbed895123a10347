"""The map of libraries, and what PyTorch once answered, by other means than the page's."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from seejax.lesson.ecosystem import MAP, Library, Map

ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / "bench" / "same_model.json").read_text("utf8"))


class Links(HTMLParser):
    """The links of a piece of HTML, with their words; and what it should not contain."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: dict[str, str] = {}
        self.here: set[str] = set()
        self.tags: set[str] = set()
        self.open = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.add(tag)
        if tag == "a":
            self.open = dict(attrs)["href"]
            if "here" in dict(attrs).get("class", ""):
                self.here.add(self.open)

    def handle_data(self, data: str) -> None:
        if self.open:
            self.words[self.open] = data

    def handle_endtag(self, tag: str) -> None:
        self.open = "" if tag == "a" else self.open


def test_every_library_is_a_link_and_works_without_script() -> None:
    links = Links(MAP._repr_html_())
    assert len(links.words) == len(MAP.libraries) == len(set(MAP.libraries))
    for library in MAP.libraries:
        assert links.words[library.link].startswith(library.name)
        assert library.name in str(MAP)
    assert not links.tags - {"style", "div", "p", "code", "span", "a"}
    assert not re.search(r"<script|\son\w+=", MAP._repr_html_())
    assert not re.search("[^\x00-\x7f]", MAP._repr_html_())  # labels of no language


def test_a_version_is_that_of_the_installed_distribution() -> None:
    links = Links(MAP._repr_html_())
    optax = next(library for library in MAP.libraries if library.name == "Optax")
    assert optax.version == version("optax") in links.words[optax.link]
    assert optax.link in links.here
    absent = Library("Nowhere", "https://example.org", "seejax-no-such-distribution")
    assert absent.version is None and not Links(Map({"x": (absent,)})._repr_html_()).here
    assert Library("Unknown", "https://example.org").version is None


def test_what_a_name_holds_is_shown_and_not_run() -> None:
    evil = Library("<b>&", 'https://example.org/"><script>')
    drawn = Map({"<i>": (evil,)})
    links = Links(drawn._repr_html_())
    assert links.tags == {"style", "div", "p", "code", "span", "a"}
    assert links.words == {evil.link: "<b>&"} and str(drawn).startswith("<i>")


@pytest.mark.parametrize("link", ["", "http://example.org", "javascript:alert(1)"])
def test_a_link_that_is_no_address_is_refused(link: str) -> None:
    with pytest.raises(ValueError, match="should begin with https://"):
        Library("A", link)


def test_what_pytorch_answered_agrees_with_differences_in_float64() -> None:
    """Nobody's automatic differentiation: central differences of the same loss by NumPy."""
    shapes = {"w1": (4, 8), "b1": (8,), "w2": (8, 3), "b2": (3,)}
    sines = lambda start, shape: np.sin(start + np.arange(np.prod(shape))).reshape(shape)  # noqa: E731
    params = {name: sines(i, shape) for i, (name, shape) in enumerate(shapes.items())}
    x, y = sines(9, (6, 4)), np.arange(6) % 3

    def loss(params: dict) -> float:
        logits = np.tanh(x @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]
        return (np.log(np.exp(logits).sum(1)) - logits[np.arange(6), y]).mean()

    assert abs(loss(params) - RECORD["loss"]) < 1e-6
    step = 1e-5
    for name, value in params.items():
        found = np.zeros_like(value)
        for at in np.ndindex(value.shape):
            ends = []
            for sign in (1, -1):
                moved = value.copy()
                moved[at] += sign * step
                ends.append(loss(params | {name: moved}))
            found[at] = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(RECORD["gradients"][name], found, atol=1e-6)


def test_the_record_names_the_version_that_the_benchmarks_use() -> None:
    pinned = re.search(
        r'TORCH = "torch==([\d.]+)"', (ROOT / "bench" / "environments.py").read_text("utf8")
    )
    assert pinned and RECORD["torch"].split("+")[0] == pinned[1]


def test_the_recorder_says_what_it_needs() -> None:
    command = [sys.executable, ROOT / "bench" / "same_model.py", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "a Python that has torch" in done.stdout
