"""Three seats that find the smallest of several sums, each knowing nothing."""

import numpy as np
import pytest

from fedclust.core.ring import Exact, limbs_from_integers
from fedclust.privacy import masks, secret_argmin
from fedclust.privacy.secret_argmin import Seat, SplitNumbers


def seats(seed=0):
    found = [bytes([seed, i]) * 16 for i in range(3)]
    return [Seat(i, found[i], found[(i + 1) % 3]) for i in range(3)]


def limbs(numbers, shape):
    return limbs_from_integers([int(n) for n in numbers], shape)


def parted(totals, rng):
    """Sums (C, n) of Python integers as three parts that say nothing of them."""
    flat = [int(n) for row in totals for n in row]
    two = [[int.from_bytes(rng.bytes(15), "little") - 2**119 for _ in flat] for _ in range(2)]
    rest = [n - a - b for n, a, b in zip(flat, *two, strict=True)]
    return [limbs(part, (len(totals), len(totals[0]))) for part in (*two, rest)]


def computed(parts, watched=None):
    """All three seats in one place, each told only what it would hear."""
    table = seats()
    begun = [secret_argmin.start_comparison(seat, part) for seat, part in zip(table, parts, strict=True)]
    states, sent = map(list, zip(*begun, strict=True))
    heard = [sent[i - 1] for i in range(3)]  # what a seat entered goes to the one after
    for _ in range(secret_argmin.rounds(len(parts[0]))):
        if watched is not None:
            watched.append(heard)
        done = [secret_argmin.advance_comparison(s, state, h) for s, state, h in zip(table, states, heard, strict=True)]
        states, sent = map(list, zip(*done, strict=True))
        heard = [sent[(i + 1) % 3] for i in range(3)]  # the rest goes to the one before
    shown = [secret_argmin.open_winners(s, state, h) for s, state, h in zip(table, states, heard, strict=True)]
    return secret_argmin.winning_labels(shown, parts[0].shape[1]), shown


def test_the_seats_agree_on_the_smallest_by_hand():
    totals = [[5, 7, 3, 0], [4, 7, 9, 0], [6, 1, 3, 0]]
    found, _ = computed(parted(totals, np.random.default_rng(0)))
    assert found.tolist() == [1, 2, 0, 0]  # of equals the first


@pytest.mark.parametrize("clusters", [2, 3, 4, 5, 6, 9])
def test_the_seats_find_what_comparing_integers_finds(clusters):
    rng = np.random.default_rng(clusters)
    size = [int(rng.integers(1, 103)) for _ in range(150)]
    totals = [[int.from_bytes(rng.bytes(13), "little") % 2**bits for bits in size] for _ in range(clusters)]
    totals[-1][:20] = totals[0][:20]
    totals[1][20:30] = [n ^ 1 for n in totals[0][20:30]]  # one apart
    found, _ = computed(parted(totals, rng))
    assert found.tolist() == [min(range(clusters), key=lambda c: (totals[c][i], c)) for i in range(150)]


def test_exact_numbers_find_their_least_alike():
    rng = np.random.default_rng(0)
    totals = [[int.from_bytes(rng.bytes(13), "little") >> int(rng.integers(0, 100)) for _ in range(300)] for _ in "abc"]
    totals[2][:50] = totals[1][:50]
    exact = Exact(limbs([n for row in totals for n in row], (3, 300)), np.asarray(0, np.int32))
    assert exact.argmin_first_axis().tolist() == [min(range(3), key=lambda c: (totals[c][i], c)) for i in range(300)]


def test_what_a_seat_hears_and_shows_is_as_good_as_random():
    """Half of all bits are set, whatever is compared: here nothing but zeros."""
    nothing = [np.zeros((3, 6400, 2), np.uint64)] * 3
    watched = []
    _, shown = computed(nothing, watched)
    for letters in (*watched, shown):
        for words in letters:
            ones = secret_argmin.unpack_planes(words, 10**9).mean()
            assert abs(ones - 0.5) < 5 * 0.5 / np.sqrt(words.size * 64)


def test_words_serve_once():
    seat = seats()[0]
    first, second = seat.share_of_zero((5,)), seat.share_of_zero((5,))
    assert not (first == second).any()
    assert not (
        secret_argmin.stream(b"k" * 32, (5,), "zero", 1) == secret_argmin.stream(b"k" * 32, (5,), "entered", 1)
    ).any()


def test_parts_that_do_not_fit_together_are_no_labels():
    _, shown = computed(parted([[1, 2], [2, 1]], np.random.default_rng(0)))
    spoiled = [shown[0] ^ np.array([[1], [0]], np.uint64), *shown[1:]]
    assert secret_argmin.winning_labels(spoiled, 2) is None


def test_a_split_number_comes_together_again():
    sums = limbs([5, -3, 2**100], (1, 3))
    split = SplitNumbers.from_sums(sums)
    assert np.array_equal(masks.add_limbs(split.rest, SplitNumbers.expand_seed(split.seed, sums.shape)), sums)
