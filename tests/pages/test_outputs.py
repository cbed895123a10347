"""What every page shows, against what it showed when somebody last read it.

The snapshots are in `__snapshots__`, a file a page. After reading what has changed: `make accept`.
"""

import io
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import outputs
import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

import limits
from book import cache, keys, paths, private

PAGES = {page.stem: page for page in paths.pages("en") if "{code-cell}" in page.read_text("utf8")}


class Pages(SingleFileSnapshotExtension):
    """One file of text a page, compared cell by cell, numbers as far as they are exact."""

    file_extension = "txt"
    _write_mode = WriteMode.TEXT

    def matches(self, *, serialized_data: str, snapshot_data: str) -> bool:
        return not any(outputs.differences(serialized_data, snapshot_data))

    def diff_lines(self, serialized_data: str, snapshot_data: str) -> Iterator[str]:
        yield from outputs.differences(serialized_data, snapshot_data)


@limits.OF_ITS_PYTHON
@pytest.mark.parametrize("page", PAGES)
def test_page(site: Path, page: str, snapshot: SnapshotAssertion) -> None:
    executed = cache.load(keys.key(private.read_notebook(PAGES[page])))
    if executed is None:
        pytest.fail(f"{page} was not executed as it stands: make html", pytrace=False)
    snapshot = snapshot.use_extension(Pages)
    if snapshot != outputs.page(keys.code_cells(executed)):
        lines = [f"{page} does not show what it showed; when you have read it: make accept"]
        pytest.fail("\n".join([*lines, *snapshot.get_assert_diff()]), pytrace=False)


# -- what is a difference, and what is none --------------------------------------------------------


def shown(
    loss: str = "0.41321",
    steps: int = 8,
    shape: str = "f32[8]",
    address: str = "0x7f00aabbcc",
    curve: tuple[float, ...] = (0, 1, 4),
    label: str = "step",
    glued: str = "0.25",
    error: str = "ValueError: no",
    tags: tuple[str, ...] = (),
    before: int = 0,
) -> str:
    """A page with one output of every kind, after some cells that show nothing."""
    figure, axes = plt.subplots(figsize=(3, 2))
    axes.plot(curve)
    axes.set_xlabel(label)
    figure.savefig(svg := io.StringIO(), format="svg")
    plt.close(figure)
    new = nbformat.v4.new_output
    record = {"kept/text/plain": glued}
    cell = nbformat.v4.new_code_cell("train(f)\nplot()", metadata={"tags": list(tags)})
    cell.outputs = [
        new("stream", name="stdout", text=f"loss {loss[:3]}"),
        new("stream", name="stdout", text=f"{loss[3:]} in {steps} steps of {shape}\n"),
        new("execute_result", {"text/html": address, "text/plain": f"<f at {address}>"}),
        new("display_data", {"image/svg+xml": svg.getvalue(), "text/plain": "<Figure>"}),
        new(
            "display_data",
            record,
            metadata={"scrapbook": {"name": "page-share", "mime_prefix": "kept/"}},
        ),
        new("error", ename="", evalue="", traceback=[error]),
    ]
    return outputs.page([*[nbformat.v4.new_code_cell("x = 1")] * before, cell])


@pytest.mark.parametrize(
    "other",
    [
        {"address": "0x7fee010203"},
        {"loss": "0.41318"},
        {"curve": (0, 1.001, 4)},
        {"before": 2},
        {"tags": ("measured",), "loss": "12.0", "steps": 31, "curve": (3, 9)},
        {"tags": ("unwatched",), "error": "KeyError", "shape": "f32[2]", "label": "epoch"},
    ],
    ids=str,
)
def test_another_run_is_no_difference(other: dict) -> None:
    before = {"tags": other.get("tags", ())}
    assert list(outputs.differences(shown(**other), shown(**before))) == []


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"loss": "0.41400"}, "+ loss 0.41400 in 8 steps of f32[8]"),
        ({"steps": 9}, "+ loss 0.41321 in 9 steps of f32[8]"),
        ({"shape": "f32[9]"}, "+ loss 0.41321 in 8 steps of f32[9]"),
        ({"tags": ("measured",), "shape": "f32[9]"}, "+ loss # in # steps of f32[9]"),
        ({"curve": (0, 2, 4)}, "+ drawn line2d: 3 points"),
        ({"label": "epoch"}, "+ epoch"),
        ({"glued": "0.26"}, "+ page-share = 0.26"),
        ({"error": "ValueError: yes"}, "+ ValueError: yes"),
    ],
    ids=str,
)
def test_a_difference_is_told_by_cell_and_line(other: dict, said: str) -> None:
    before = {"tags": other.get("tags", ())}
    heading, *lines = outputs.differences(shown(**other), shown(**before))
    assert heading == "── cell 1: train(f)"
    assert len(lines) == 2 and lines[0].startswith("- "), lines
    assert lines[1].startswith(said)
