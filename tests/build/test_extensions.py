"""What the extensions make of a small book: folds, terms, names, in both languages."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jinja2
import pytest
from bs4 import BeautifulSoup
from docutils import nodes
from docutils.utils import new_document

from book import paths, tables
from book.extensions import build_facts, chinese, terms, toc

ROOT = Path(__file__).parents[2]

PIXEL = base64.b64encode((ROOT / "docs" / "screenshot.png").read_bytes()).decode()
OUTPUTS = {
    "text": {"output_type": "stream", "name": "stdout", "text": "said aloud"},
    "error": {
        "output_type": "error",
        "ename": "TypeError",
        "evalue": "not so",
        "traceback": ["TypeError: not so"],
    },
    "html": {
        "output_type": "execute_result",
        "execution_count": 1,
        "data": {"text/html": "<b>drawn</b>", "text/plain": "drawn"},
        "metadata": {},
    },
    "image": {
        "output_type": "display_data",
        "data": {"image/png": PIXEL, "text/plain": "a picture"},
        "metadata": {},
    },
}


def cell(tags: list[str], *outputs: dict) -> dict:
    return {
        "cell_type": "code",
        "execution_count": 1,
        "metadata": {"tags": tags},
        "source": "code()",
        "outputs": list(outputs),
    }


def page(*cells: dict) -> str:
    title = {"cell_type": "markdown", "metadata": {}, "source": "(index)=\n# A book\n\nIs it so?"}
    toctree = "```{toctree}\n:caption: Part\n\nShort <long>\nTerms <terms>\n```"
    cells = (title, {"cell_type": "markdown", "metadata": {}, "source": toctree}, *cells)
    about = {"language_info": {"name": "python"}}
    return json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": about, "cells": cells})


LONG = """\
(long)=
# A long title of a page

What is a [tracer](#term-tracer), and again a [tracer](#term-tracer), [of words](#term-jaxpr)?

[](index.ipynb) {built}`jax` {built}`date` {repository}`words <.>`

(long-two)=
## Two

See [](terms.md).
"""


PROSE = {
    "top": "(lesson)=\n# A lesson\n\nIs it so?\n\n(lesson-main)=\n## Main\n\n"
    "It adds.° At 20° too.\n\n"
    ":::{fine}\n- Not words.\n- Not sets.\n:::\n\n:::{careful}\nIt is silent.\n:::",
    "answers": ":::{guess}\n- Four it is.\n- One too many.\n- It does not raise.\n:::",
    "task": "(lesson-exercises)=\n## Exercises\n\n**1. Do it.** Now.",
    "why": ":::{container} why\nBecause.\n:::\n\n(lesson-takeaways)=\n## Takeaways\n\n- One.",
    "deeper": "(lesson-deeper)=\n## Deeper\n\n" + "word " * 1500,
}


def stream(text: str) -> dict:
    return {"output_type": "stream", "name": "stdout", "text": text}


def lesson(**other: str) -> str:
    """A page with a guess, an exercise and two layers; `other` prose in some places."""
    said = {
        name: {"cell_type": "markdown", "metadata": {}, "source": text}
        for name, text in (PROSE | other).items()
    }
    puzzle = [cell(["puzzle"], stream("4\n")), cell(["mistake"], stream("5\n"))]
    puzzle.append(cell(["mistake", "raises-exception"], OUTPUTS["error"]))
    exercise = [cell(["exercise"]), cell(["hide-cell", "solution"]), cell(["tests"])]
    for name, each in zip(("start", "solved", "tested"), exercise, strict=True):
        each["source"] = name
    cells = [said["top"], *puzzle, said["answers"], said["task"], *exercise, said["why"]]
    about = {"language_info": {"name": "python"}, "orphan": True}
    cells.append(said["deeper"])
    return json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": about, "cells": cells})


def laid(language: str, work: Path) -> Path:
    """The source of a book of three pages; cells have their outputs already."""
    source = work / "source"
    source.mkdir()
    puzzles = [cell(["puzzle"], output) for output in OUTPUTS.values()]
    others = [cell([tag], OUTPUTS["text"]) for tag in ("hide-cell", "hide-input", "plain")]
    solution = cell(["hide-cell", "solution"], OUTPUTS["text"])
    (source / "index.ipynb").write_text(page(*puzzles, *others, solution))
    (source / "long.md").write_text(LONG)
    (source / "lesson.ipynb").write_text(lesson())
    shutil.copy(ROOT / "docs" / language / "terms.md", source)
    for name in {"api", *(term["see"] for term in terms.terms().values() if "see" in term)}:
        (source / f"{name}.md").write_text(f"---\norphan: true\n---\n({name})=\n# {name}\n")
    others = work / "static"  # what an extension might add
    (others / "styles").mkdir(parents=True)
    (others / "styles" / "else.css").touch()
    return source


def build(language: str, work: Path, fails: bool = False) -> Path:
    """The site, built as the real one is."""
    environment = {
        **os.environ,
        "READTHEDOCS_CANONICAL_URL": f"https://book.test/{paths.LANGUAGES[language]['slug']}/latest/",
        "READTHEDOCS_GIT_CLONE_URL": "git@github.com:someone/book.git",
        "SOURCE_DATE_EPOCH": "86400",
    }
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "-c", ROOT / "docs"]
    command += ["--keep-going"] if fails else []
    command += ["-t", language, "-D", "nb_execution_mode=off"]
    command += [f"-Dhtml_static_path={work / 'static'}", "-Dhtml_css_files=styles/else.css"]
    command += [work / "source", work / "html"]
    ran = subprocess.run(command, env=environment, capture_output=True, encoding="utf8")
    assert (ran.returncode != 0) == fails, ran.stdout + ran.stderr
    (work / "warnings").write_text(ran.stderr, "utf8")
    return work / "html"


@pytest.fixture(scope="module", params=paths.LANGUAGES)
def small(request, tmp_path_factory) -> SimpleNamespace:
    language, work = request.param, tmp_path_factory.mktemp(request.param)
    laid(language, work)
    html = build(language, work)

    def soup(name: str) -> BeautifulSoup:
        return BeautifulSoup((html / f"{name}.html").read_text("utf8"), "html.parser")

    return SimpleNamespace(html=html, soup=soup, words=tables.words(language), language=language)


def test_exports_are_written_with_their_page_and_go_with_it(tmp_path: Path) -> None:
    source = laid("en", tmp_path)
    spare = json.loads(page(cell([], OUTPUTS["html"])))
    spare["metadata"]["orphan"] = True
    spare["cells"][:2] = [spare["cells"][0] | {"source": "(spare)=\n# Spare\n\nIs it so?"}]
    (source / "spare.ipynb").write_text(json.dumps(spare))

    def exports() -> dict[str, int]:
        files = [path for path in build("en", tmp_path).rglob("*.*") if path.is_file()]
        kept = [path for path in files if path.suffix in (".md", ".ipynb")]
        return {p.relative_to(tmp_path / "html").as_posix(): p.stat().st_mtime_ns for p in kept}

    before = exports()
    own = {"spare.md", "notebooks/spare.ipynb"}
    assert own <= before.keys() and "notebooks/long.ipynb" not in before
    assert "```text\ndrawn\n```" in (tmp_path / "html" / "spare.md").read_text("utf8")
    (source / "spare.ipynb").unlink()
    (source / "long.md").write_text(LONG.replace("See [", "Now see ["))
    after = exports()
    assert before.keys() - after.keys() == own
    written = {name for name, time in after.items() if time != before[name]}
    front = {"index.md", "notebooks/index.ipynb"}  # it lists the page, so Sphinx writes it as well
    assert written - front == {"long.md"}


def test_a_puzzle_folds_every_kind_of_output_and_shows_its_code(small) -> None:
    cells = small.soup("index").select(".cell.tag_puzzle")
    assert len(cells) == len(OUTPUTS)
    for each, within in zip(cells, ("said aloud", "TypeError: not so", "drawn", ""), strict=True):
        assert each.select_one(".cell_input").find_parent("details") is None
        (fold,) = each.select("details")
        assert not fold.has_attr("open") and fold.select_one(".cell_output")
        assert within in fold.get_text() and (within or fold.select_one("img"))
        assert fold.summary.select_one(".collapsed").get_text() == small.words["output_show"]


def test_a_fold_says_what_it_holds(small) -> None:
    soup = small.soup("index")
    for tag, kind in (("solution", "solution"), ("hide-input", "code"), ("hide-cell", "check")):
        folds = soup.select(f".cell.tag_{tag} details")
        said = [span.get_text() for span in folds[0].summary.select("span")]
        assert said == [small.words[f"{kind}_show"], small.words[f"{kind}_hide"]]
    assert not soup.select(".cell.tag_plain details")


def test_fine_print_is_folded_and_its_mark_leads_there_and_back(small) -> None:
    soup = small.soup("lesson")
    (fold,) = soup.select("details.fine")
    assert fold.summary.get_text() == small.words["fine"] and not fold.has_attr("open")
    assert [item.get_text().strip() for item in fold.select("li")] == ["Not words.", "Not sets."]
    (mark,) = soup.select("a.fine-mark")
    assert mark.get_text() == "°" and mark["href"] == f"#{fold['id']}"
    assert mark.find_parent("p").get_text() == "It adds.° At 20° too."
    assert fold.select_one("a.fine-back")["href"] == f"#{mark['id']}"


def test_a_warning_begins_with_its_word(small) -> None:
    (box,) = small.soup("lesson").select(".careful")
    assert box.strong.get_text() == small.words["careful"] and "It is silent." in box.get_text()


def test_a_guess_has_the_outputs_of_its_cells_and_an_answer_to_each(small) -> None:
    soup = small.soup("lesson")
    choices = soup.select(".tag_puzzle .guess > details.choice")
    found = {each.summary.get_text(): each.select("p")[-1].get_text() for each in choices}
    assert found == {
        "4": "Four it is.",
        "5": "One too many.",
        "TypeError: not so": "It does not raise.",
    }
    (right,) = [each for each in choices if each.has_attr("data-right")]
    assert right.summary.get_text() == "4" and len({each["name"] for each in choices}) == 1
    said = [each.select_one(".verdict").get_text() for each in choices]
    assert said.count(small.words["guess_wrong"]) == 2
    assert not soup.select(".tag_mistake") and not any(c.has_attr("open") for c in choices)


def test_an_exercise_shows_its_tests_and_folds_its_solution(small) -> None:
    (section,) = small.soup("lesson").select("#lesson-exercises")
    shown = [code.get_text().strip() for code in section.select(".cell_input pre")]
    assert shown == ["start", "tested", "solved"]
    (fold,) = section.select("details")
    assert "solved" in fold.get_text() and "Because." in fold.get_text()


def test_a_lesson_says_how_long_its_layers_take(small) -> None:
    (line,) = small.soup("lesson").select(".times")
    deeper = small.words["time_deeper"].format(deeper=10)  # 1500 words, 180 a minute
    assert line.a.get_text() == deeper and line.a["href"] == "#lesson-deeper"
    assert line.get_text().startswith(small.words["time"].format(main=1))
    assert not small.soup("long").select(".times")
    described = small.soup("lesson").select_one("meta[name=description]")
    assert described["content"] == "Is it so?"


def test_a_lesson_is_whole_as_markdown_and_as_a_notebook(small) -> None:
    text = (small.html / "lesson.md").read_text("utf8")
    for part in ("It adds.° At 20° too.", "- Not sets.", small.words["careful"], "One too many."):
        assert part in text
    notebook = json.loads((small.html / "notebooks" / "lesson.ipynb").read_text("utf8"))
    cells = ["".join(each["source"]) for each in notebook["cells"]]
    places = [cells.index(name) for name in ("start", "tested", "solved")]
    assert places == sorted(places)
    tested = notebook["cells"][places[1]]["metadata"]["tags"]
    assert "raises-exception" in tested  # until the reader has done it
    (guess,) = [each for each in cells if "Four it is." in each]
    assert guess.count("<details>") == 3 and small.words["guess"] in guess


def test_a_layer_that_leads_nowhere_ends_the_build(tmp_path: Path) -> None:
    source = laid("en", tmp_path)
    faults = {
        "mark": {"top": PROSE["top"].replace("It adds.°", "It adds.")},
        "fine": {"deeper": "(lesson-deeper)=\n## Deeper\n\nA limit.°"},
        "few": {"answers": ":::{guess}\n- Four it is.\n- One too many.\n:::"},
        "puzzle": {"task": PROSE["answers"]},
        "box": {"why": ":::{careful}\n- a\n:::"},
    }
    for name, other in faults.items():
        (source / f"{name}.ipynb").write_text(lesson(**other).replace("lesson", name))
    build("en", tmp_path, fails=True)
    said = (tmp_path / "warnings").read_text("utf8")
    for name, words in (
        ("mark", "no ° in a sentence before"),
        ("fine", "a sentence has ° and no {fine}"),
        ("few", "3 choices, 2 answers"),
        ("puzzle", "1 choices, 3 answers"),
        ("box", "{careful} begins with a paragraph"),
    ):
        assert any(f"{name}.ipynb" in line and words in line for line in said.splitlines()), said


def test_a_page_carries_the_explanation_of_each_term_once(small) -> None:
    soup = small.soup("long")
    assert soup.select_one("a.term")["href"] == "terms.html#term-tracer"
    assert len(soup.select("a.term")) == 3
    (tips,) = soup.select("template.term-tips")
    assert [tip["id"] for tip in tips.select(".term-tip")] == ["tip-term-tracer", "tip-term-jaxpr"]
    assert ("追踪器" if small.language == "zh" else "tracer (") in tips.get_text()
    assert not small.soup("index").select("template.term-tips")


def test_a_page_is_called_by_its_short_name(small) -> None:
    soup = small.soup("terms")
    assert soup.select_one("a.left-prev .prev-next-title").get_text() == "Short"
    assert soup.select_one(".bd-sidebar-primary nav a").get_text().strip() == "Short"
    assert "Terms" in small.soup("long").select_one("#long-two p").get_text()


@pytest.mark.parametrize("many", [8, 400])
def test_the_sidebar_of_a_large_book_opens_one_part(many: int, monkeypatch) -> None:
    """And so weighs no more; every page is a click away, by the map of the front page."""
    first, last = (
        toc.Part(f"{side} & more", side, {f"{side}{i}": f"Page {i}" for i in range(many // 2)})
        for side in ("a", "b")
    )
    monkeypatch.setattr(toc, "parts", lambda env: [first, last])
    context = {"words": {"pages": "All"}, "pagename": "b1", "root_doc": "index"}
    toc.list_parts(SimpleNamespace(env=None), "b1", None, context, None)
    templates = jinja2.Environment(loader=jinja2.FileSystemLoader(paths.THEME))
    made = templates.get_template("parts/sidebar.html").render(
        pathto=lambda page: f"{page}.html", **context
    )
    soup = BeautifulSoup(made, "html.parser")
    assert [each.get_text() for each in soup.select(".caption")] == ["a & more", "b & more"]
    assert soup.select_one("a.current")["href"] == "b1.html"
    listed = [a["href"] for a in soup.select("li a")]
    folded = [a["href"] for a in soup.select(".caption a")]
    if many > toc.ALL:
        assert listed == [f"{page}.html" for page in last.pages] and folded == ["index.html#a"]
    else:
        assert listed == [f"{page}.html" for part in (first, last) for page in part.pages]
        assert not folded


def test_opengraph_names_the_picture_of_the_language(small) -> None:
    soup = small.soup("long")
    said = {m.get("name") or m.get("property"): m["content"] for m in soup.select("meta[content]")}
    assert said["description"] == "What is a tracer, and again a tracer, of words?"
    slug = paths.LANGUAGES[small.language]["slug"]
    canonical = f"https://book.test/{slug}/latest/long.html"
    assert said["og:url"] == soup.select_one("link[rel=canonical]")["href"] == canonical
    assert said["og:image"] == f"https://book.test/{slug}/latest/_static/card.{small.language}.png"
    assert soup.title.get_text() == f"A long title of a page — {small.words['title']}"
    front = small.soup("index").title.get_text()
    assert front == f"{small.words['title']} · {small.words['tagline']}"


def test_a_page_says_what_it_was_built_with(small) -> None:
    soup = small.soup("long")
    assert build_facts.facts()["jax"] in soup.article.get_text()
    assert "1970-01-02" in soup.article.get_text()
    link = soup.article.select_one("a[href='https://github.com/someone/book']")
    assert link.get_text() == "words"
    footer = [a.get_text() for a in soup.select(f"a[href='{link['href']}']") if a != link]
    assert footer == [small.words["repository"]]


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://github.com/someone/book.git", "https://github.com/someone/book"),
        ("https://user:token@gitlab.com/group/sub/book", "https://gitlab.com/group/sub/book"),
        ("git@gitee.com:someone/book.git", "https://gitee.com/someone/book"),
        ("ssh://git@codeberg.org:22/someone/book/", "https://codeberg.org/someone/book"),
        ("/somewhere/book", ""),
        ("file:///somewhere/book", ""),
        ("http://127.0.0.1:80/git/book", ""),
        ("https://github.com.example.org/someone/book", ""),
        ("", ""),
    ],
)
def test_only_a_public_address_is_published(address: str, shown: str) -> None:
    assert build_facts.public(address) == shown


def joined(*parts: str) -> str:
    paragraph = nodes.paragraph("", "", *map(nodes.Text, parts))
    document = new_document("")
    document += paragraph
    chinese.join_lines(SimpleNamespace(config=SimpleNamespace(language="zh_CN")), document)
    return paragraph.astext()


def test_a_line_break_is_dropped_where_it_stands_and_nowhere_else() -> None:
    assert joined("约是 x", "\n", "y 的图", "\n", "左") == "约是 x\ny 的图左"
    assert joined("图", "\n", "左", "\n", "x", "\n", "右") == "图左\nx\n右"
    assert joined("一。", "\n", "x", "\n", "图", "\n", "左") == "一。x\n图左"


def test_assets_publishes_what_pages_use_and_what_it_does_not_know(small) -> None:
    """An extension that brings files of its own finds them again, whatever it is."""
    static = small.html / "_static"
    ours = {file.name for file in (paths.THEME / "static").iterdir()}
    ours |= {"site.css", "site.js", "see.css", "see.js"}
    there = {path.relative_to(static).as_posix() for path in static.rglob("*") if path.is_file()}
    assert there == ours | {"styles/else.css"}
    linked = [link["href"] for link in small.soup("long").select("link[rel=stylesheet]")]
    assert [re.sub(r".*/|\?.*", "", href) for href in linked] == ["site.css", "else.css"]
    scripts = small.soup("long").select("script")
    assert [re.sub(r".*/|\?.*", "", each.get("src", "")) for each in scripts] == ["", "site.js"]
