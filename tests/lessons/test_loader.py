"""Batches from files: each example once an epoch, moved as asked, and going on where they were."""

import itertools
import json

import jax
import numpy as np
import pytest

from seejax.training import digits, loader
from seejax.training.classifier import classifier
from seejax.training.steps import create_state, train_step


@pytest.fixture
def batches(data_dir):
    def make(**options):
        options = {"batch_size": 32, "seed": 0, "epochs": 1, "data_dir": data_dir} | options
        return iter(loader.batches(**options))

    return make


def examples(batches) -> list[tuple[bytes, int]]:
    return [
        (image.tobytes(), int(label))
        for images, labels in batches
        for image, label in zip(images, labels, strict=True)
    ]


def same(one, other) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("split", digits.SPLITS)
def test_an_epoch_is_the_split_in_another_order(split, batches, data_dir):
    loaded = digits.load("digits", split, data_dir)
    found = examples(batches(split=split, batch_size=9))
    known = examples([loaded])
    assert len(found) == len(known) // 9 * 9 and found != known[: len(found)]
    counts = {example: known.count(example) for example in known}  # two images may be equal
    assert all(found.count(example) <= counts.get(example, 0) for example in found)


def test_epochs_seeds_and_batches_differ(batches):
    two = examples(batches(epochs=2))
    first, second = two[:1280], two[1280:]
    assert len(second) == 1280 and first != second
    assert first == examples(batches()) != examples(batches(seed=1))
    endless = itertools.islice(batches(epochs=None), 200)  # five epochs of 40
    assert sum(len(labels) for _, labels in endless) == 200 * 32


def test_parts_have_nothing_in_common(batches):
    parts = [examples(batches(part=(i, 3), batch_size=10)) for i in range(3)]
    assert [len(part) for part in parts] == [430, 430, 430]
    whole = examples(batches(batch_size=1))
    left = list(whole)
    for example in itertools.chain(*parts):
        left.remove(example)
    assert len(left) == 1293 - 3 * 430


@pytest.mark.parametrize("pixels", [1, 2])
def test_images_are_moved_in_all_directions_alike_and_nothing_else_changes(pixels, batches):
    still, moved = batches(seed=3), batches(seed=3, shift=pixels)
    seen = {}
    for (images, labels), (shifted, same_labels) in zip(still, moved, strict=True):
        assert np.array_equal(labels, same_labels)
        for image, other in zip(images[..., 0], shifted[..., 0], strict=True):
            fits = []
            for down, right in itertools.product(range(-pixels, pixels + 1), repeat=2):
                expected = np.zeros_like(image)
                rows = [slice(max(0, d), 8 + min(0, d)) for d in (down, -down)]
                columns = [slice(max(0, r), 8 + min(0, r)) for r in (right, -right)]
                expected[rows[0], columns[0]] = image[rows[1], columns[1]]
                if np.array_equal(expected, other):
                    fits.append((down, right))
            assert fits
            if len(fits) == 1:
                seen[fits[0]] = seen.get(fits[0], 0) + 1
    ways = (2 * pixels + 1) ** 2
    assert len(seen) == ways
    n = sum(seen.values()) / ways
    assert all(abs(count - n) < 5 * np.sqrt(n) for count in seen.values())


def test_each_epoch_moves_an_image_anew(batches):
    two = list(batches(epochs=2, shift=2, batch_size=1293, seed=1))
    (first, _), (second, _) = two
    again = {image.tobytes() for image in first} & {image.tobytes() for image in second}
    assert len(again) < 0.25 * 1293  # one in 25 by chance, and images whose edge is empty


@pytest.mark.parametrize("taken", [0, 1, 39, 40, 63])
def test_going_on_from_a_saved_position(taken, batches):
    options = {"epochs": 2, "shift": 1}
    undisturbed = batches(**options)
    for _ in range(taken):
        next(undisturbed)
    position = json.loads(json.dumps(undisturbed.get_state()))
    resumed = batches(**options)
    next(resumed)
    resumed.set_state(position)
    left = list(undisturbed)
    assert len(left) == 80 - taken
    assert all(same(a, b) for a, b in zip(left, resumed, strict=True))


def test_a_job_trains_on_them_and_goes_on_with_the_same_bits(batches):
    network = classifier("linen")

    def fresh():
        return create_state(jax.random.key(0), network, np.zeros((1, 8, 8, 1), np.uint8))

    data, state = batches(shift=1), fresh()
    for count, batch in enumerate(data, 1):
        state, _ = train_step(state, *batch)
        if count == 20:
            halfway, position = state, data.get_state()
    resumed = batches(shift=1)
    resumed.set_state(position)
    for batch in resumed:
        halfway, _ = train_step(halfway, *batch)
    assert state.step == 40
    jax.tree.map(np.testing.assert_array_equal, halfway, state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size 0 does not fit 1293"),
        ({"batch_size": 1294}, "batch_size 1294 does not fit 1293"),
        ({"part": (0, 2), "batch_size": 647}, "batch_size 647 does not fit 646"),
        ({"part": (2, 2)}, r"part \(2, 2\)"),
        ({"part": (-1, 2)}, r"part \(-1, 2\)"),
        ({"shift": -1}, "shift -1"),
        ({"seed": -1}, "seed -1"),
        ({"epochs": 0}, "epochs 0"),
        ({"split": "all"}, "choose from train, validation, test"),
    ],
)
def test_what_cannot_be(options, message, batches):
    with pytest.raises(ValueError, match=message):
        batches(**options)
