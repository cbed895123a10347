"""A guess that is answered: under a puzzle, what it might show, and to each choice an answer.

The first choice is what the puzzle showed. Each of the others was shown by a cell tagged `mistake`,
which stands after the puzzle and runs what somebody thinks who is mistaken; no choice is typed. So
a list of answers follows in {guess}: to the right choice, then to each mistake in its order.

A choice is a <details>: it opens without a script, by keyboard, from the disk. guess.js keeps what
was chosen first, on the reader's device, and {guess-again} on the front page lists what was wrong.
"""

from html import escape

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from book import private
from book.extensions.layers import is_picture

logger = logging.getLogger(__name__)


class Guess(nodes.General, nodes.Element):
    """The choices of a puzzle, in the order in which they are shown."""


class Choice(nodes.General, nodes.Element):
    """What one of them would show (`text`), whether it did (`right`), and the answer."""


class Again(nodes.General, nodes.Element):
    """On the front page: what was guessed wrong some days ago, which a script alone knows."""


class AgainDirective(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        return [Again()]


class GuessDirective(SphinxDirective):
    has_content = True

    def run(self) -> list[nodes.Node]:
        (answers,) = self.parse_content_to_nodes()
        if not isinstance(answers, nodes.bullet_list):
            raise self.error("{guess} holds a list: the answer to each choice")
        guess = Guess("", *(Choice("", *item.children) for item in answers))
        self.set_source_info(guess)
        return [guess]


def choose(app, doctree) -> None:
    """Put each guess into its puzzle, between the code and what it showed."""
    for number, guess in enumerate(list(doctree.findall(Guess)), 1):
        cells = [cell for cell in before(guess) if private.is_code_cell(cell)]
        guess.parent.remove(guess)
        if fault := wrong(cells, guess):
            logger.warning(fault, location=guess)
            continue
        texts = [private.shown(cell) for cell in cells]
        for choice, text in zip(guess.children, texts, strict=True):
            choice["text"], choice["right"] = text, text == texts[0]
        guess["name"] = f"guess-{number}"
        guess[:] = sorted(guess.children, key=lambda choice: choice["text"])
        puzzle, output = cells[0], cells[0][-1]
        if not any(output.findall(is_picture)):
            puzzle.remove(output)  # the right choice shows it
        puzzle.insert(1, guess)
        for mistake in cells[1:]:
            mistake.parent.remove(mistake)


def wrong(cells: list[nodes.container], guess: Guess) -> str:
    """What is wrong with a puzzle and its mistakes, if anything."""
    tags = [private.cell_tags(cell) for cell in cells]
    if not tags or "puzzle" not in tags[0] or not all("mistake" in each for each in tags[1:]):
        return "before {guess} stand a puzzle and its mistakes"
    if len(cells) != len(guess):
        return f"{len(cells)} choices, {len(guess)} answers"
    texts = [private.shown(cell) for cell in cells]
    if len({*texts}) < len(texts) or not all(texts):
        return f"each choice has to show something else: {texts}"
    return ""


def before(guess: Guess) -> list[nodes.Node]:
    """From its puzzle to the last node before a guess."""
    siblings = guess.parent.children[: guess.parent.index(guess)]
    puzzles = [n for n, node in enumerate(siblings) if is_puzzle(node)]
    return siblings[puzzles[-1] :] if puzzles else siblings[-1:]


def is_puzzle(node: nodes.Node) -> bool:
    return private.is_code_cell(node) and "puzzle" in private.cell_tags(node)


def open_guess(translator, node: Guess) -> None:
    ask, yours = (escape(translator.config.words[word]) for word in ("guess", "guess_yours"))
    translator.body.append(
        f'<div class="guess" id="{node["name"]}" role="group" aria-label="{ask}" '
        f'data-yours="{yours}"><p class="guess-ask">{ask}</p>\n'
    )


def close_guess(translator, node: Guess) -> None:
    translator.body.append("</div>\n")


def open_choice(translator, node: Choice) -> None:
    said = translator.config.words["guess_right" if node["right"] else "guess_wrong"]
    right = " data-right" if node["right"] else ""
    translator.body.append(
        f'<details class="choice" name="{node.parent["name"]}"{right}><summary>'
        f'<code>{escape(node["text"])}</code></summary>\n<div><p class="verdict">{said}</p>\n'
    )


def close_choice(translator, node: Choice) -> None:
    translator.body.append("</div></details>\n")


def open_again(translator, node: Again) -> None:
    said = translator.config.words["guess_again"]
    translator.body.append(f'<div class="guess-again" hidden>{said}')


def close_again(translator, node: Again) -> None:
    translator.body.append("</div>\n")


def setup(app) -> dict:
    app.setup_extension("book.extensions.folds")
    app.add_node(Guess, html=(open_guess, close_guess))
    app.add_node(Choice, html=(open_choice, close_choice))
    app.add_node(Again, html=(open_again, close_again))
    app.add_directive("guess", GuessDirective)
    app.add_directive("guess-again", AgainDirective)
    app.connect("doctree-read", choose)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
