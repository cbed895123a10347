"""A guess on the built site: readers who guess in their ways, and what is kept of it."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from built_site import LANGUAGES
from playwright.sync_api import Locator, Page, expect

from book import tables

PAGE = "tour.html"

WAYS = {  # what a reader opens, one after the other
    "right": ["right"],
    "wrong": ["wrong"],
    "wrong then right": ["wrong", "right"],
    "right then wrong": ["right", "wrong"],
    "all": ["wrong", "last", "right"],
}


def choice(guess: Locator, which: str) -> Locator:
    wrong = guess.locator("details:not([data-right])")
    places = {"wrong": wrong.first, "last": wrong.last}
    return places[which] if which in places else guess.locator("details[data-right]")


def kept(page: Page) -> dict:
    return json.loads(page.evaluate("localStorage.getItem('guesses')") or "{}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("script", [True, False], ids=["script", "no-script"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_guess_is_answered(reader, site: Path, language: str, script: bool, way: str) -> None:
    """From the disk, by keyboard: each choice has its answer, and the first one is the guess."""
    page = reader(home=site.as_uri(), java_script_enabled=script).open(f"{language}/{PAGE}")
    guess, words = page.locator(".guess").first, tables.words(language)
    expect(guess.locator("details[open]")).to_have_count(0)
    for which in WAYS[way]:
        opened = choice(guess, which)
        opened.locator("summary").focus()
        page.keyboard.press("Enter")
        verdict = words["guess_right" if which == "right" else "guess_wrong"]
        expect(opened.locator(".verdict")).to_be_visible()
        expect(opened.locator(".verdict")).to_have_text(verdict)
        expect(guess.locator("details[open]")).to_have_count(1)  # the one before is closed
    if script:
        first = choice(guess, WAYS[way][0])
        expect(first).to_have_attribute("data-yours", words["guess_yours"])
        expect(guess.locator("summary small")).to_have_text(f"← {words['guess_yours']}")
        (noted,) = kept(page).values()
        assert noted["right"] == (WAYS[way][0] == "right")


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_was_wrong_some_days_ago_is_offered_again(reader, language: str) -> None:
    here = reader()
    page = here.open(f"{language}/{PAGE}")
    guess = page.locator(".guess").first
    choice(guess, "wrong").locator("summary").click()
    expect(guess.locator("[data-yours]")).to_have_count(1)
    here.open(f"{language}/index.html")
    expect(page.locator(".guess-again")).to_be_hidden()  # it was a moment ago
    page.evaluate(
        """days => {
          const all = JSON.parse(localStorage.getItem("guesses"));
          for (const each of Object.values(all)) each.time -= days * 1000;
          localStorage.setItem("guesses", JSON.stringify(all));
        }""",
        timedelta(days=3).total_seconds(),
    )
    here.open(f"{language}/index.html")
    link = page.locator(".guess-again a")
    expect(link).to_have_count(1)
    link.click()
    page.wait_for_url(f"**/{language}/{PAGE}#guess-1")
    choice(page.locator(".guess").first, "right").locator("summary").click()
    expect(page.locator(".guess [data-yours]")).to_have_count(1)
    here.open(f"{language}/index.html")
    expect(page.locator(".guess-again")).to_be_hidden()  # guessed right now


def test_a_guess_goes_on_where_nothing_can_be_kept(reader) -> None:
    here = reader()
    here.context.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new Error('refused'); }})"
    )
    page = here.open(f"en/{PAGE}")
    guess = page.locator(".guess").first
    choice(guess, "wrong").locator("summary").click()
    expect(guess.locator("[data-yours]")).to_have_count(1)
