"""The page of old code as its readers have it: the way there and back, and the field that finds."""

from pathlib import Path

import pytest
from built_site import CONTRAST, LANGUAGES, OVERFLOW, WIDTHS, soup
from playwright.sync_api import Page, expect

from book.extensions import today
from seejax import errors

ENTRIES = today.entries()


@pytest.mark.parametrize("language", LANGUAGES)
def test_sections_and_entries_lead_to_each_other(site: Path, language: str) -> None:
    page = soup(f"{language}/today.html")
    for name, entry in ENTRIES.items():
        title = page.select_one(f"#today-{name}")
        there = {a["href"] for a in title.find_next_sibling("dd").select(".term-see a")}
        for anchor in entry.get("see", ()):
            (href,) = [href for href in there if href.endswith(f"#{anchor}")]
            section = soup(f"{language}/{href.partition('#')[0]}").select_one(f"#{anchor}")
            lines = section.find_all("p", class_="term-see", recursive=False)
            (link,) = [a for p in lines for a in p.select(f"a[href$='#today-{name}']")]
            assert link.get_text() == title.get_text()


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_error_is_named_where_its_section_ends(site: Path, language: str) -> None:
    page = soup(f"{language}/errors.html")
    for name, entry in errors.entries().items():
        title = page.select_one(f"#error-{name}")
        (href,) = [
            a["href"]
            for a in title.find_next_sibling("dd").select(".term-see a")
            if a["href"].endswith(f"#{entry.see[0]}")
        ]
        section = soup(f"{language}/{href.partition('#')[0]}").select_one(f"#{entry.see[0]}")
        lines = section.find_all("p", class_="term-see", recursive=False)
        (link,) = [a for p in lines for a in p.select(f"a[href$='#error-{name}']")]
        said, told = link.get_text().removesuffix(" …"), title.get_text().replace("`", "")
        assert told.startswith(said) and len(said) > len(said.partition(":")[0]) + 5


SHOWN = """() => [...document.querySelectorAll("dl.today > dt")]
  .filter(title => title.checkVisibility()).map(title => title.id.replace("today-", ""))"""


def shown(page: Page) -> list[str]:
    return page.evaluate(SHOWN)


@pytest.mark.parametrize("language", LANGUAGES)
def test_typing_an_old_name_finds_its_entry(reader, language: str) -> None:
    page = reader().open(f"{language}/today.html")
    field, count = page.locator(".today-filter input"), page.locator(".today-filter output")
    found = "找到 {} 条" if language == "zh" else "Entries found: {}"
    assert shown(page) == list(ENTRIES) and not count.inner_text()
    for typed, wanted in {
        "jax.ops.index_add": "index-update",
        "tree_multimap": "tree-multimap",
        "jnp.tree_multimap": "tree-multimap",  # from another module
        "DeviceArray": "device-array",
        "deviceARRAY isinstance": "device-array",
        "clu": "parameter-overview",
        "from jax.config import": "enable-x64",
    }.items():
        field.fill(typed)
        names = shown(page)
        assert wanted in names and len(names) <= 3, f"{typed}: {names}"
        expect(count).to_have_text(found.format(len(names)))
        topics = {ENTRIES[name]["topic"] for name in names}
        expect(page.locator("section:has(> dl.today) > h2:visible")).to_have_count(len(topics))
    field.fill("<img src=x onerror=alert(1)> no such thing")
    expect(count).to_have_text(found.format(0))
    assert not shown(page) and not page.locator(".today-filter img").count()
    page.evaluate("location.hash = 'today-pmap'")  # as a result of the search leads here
    expect(page.locator("#today-pmap")).to_be_in_viewport()
    assert shown(page) == list(ENTRIES) and not field.input_value()


def test_the_field_is_used_by_keyboard_and_announced(reader) -> None:
    page = reader().open("en/today.html")
    field = page.get_by_role("searchbox", name="Type a name of your code, or a word of a claim")
    field.focus()
    page.keyboard.type("index_update")
    assert "index-update" in shown(page)
    expect(page.get_by_role("status").filter(has_text="Entries found")).to_have_count(1)
    page.keyboard.press("Escape")
    assert shown(page) == list(ENTRIES)
    expect(page.locator(".today-filter output")).to_be_empty()


def test_without_a_script_there_is_no_field_and_every_entry(reader) -> None:
    page = reader(java_script_enabled=False).open("zh/today.html")
    assert shown(page) == list(ENTRIES)
    expect(page.locator(".today-filter input")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_found_fits_and_can_be_read(reader, width: str, scheme: str) -> None:
    page = reader(width=width, color_scheme=scheme).open("zh/today.html")
    page.locator(".today-filter input").fill("split")
    assert not page.evaluate(OVERFLOW) and not page.evaluate(CONTRAST)
