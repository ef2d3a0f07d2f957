"""Columns of texts that stand in a file's bytes say what Python says of each text."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapscope.validate import texts as module
from tapscope.validate.event_calls import Names
from tapscope.validate.parsing import of_each, of_form, parsed, whole
from tapscope.validate.texts import Texts, lines_of

LETTERS = st.text(alphabet='ab=:"é0 \x00', max_size=20)
MANY = st.lists(LETTERS, max_size=12)


def _in_a_file(texts: list[str]) -> Texts:
    """The texts as cells of one file, not in order: every second one stands behind all others."""
    ordered = [*texts[::2], *texts[1::2]]
    column = Texts.of(["before", *ordered, "behind"])
    place = np.argsort([*range(0, len(texts), 2), *range(1, len(texts), 2)], kind="stable")
    return column.where(place + 1)


@given(MANY)
def test_texts_come_back_as_they_were(texts):
    column = _in_a_file(texts)
    assert (column.tolist(), list(column), len(column)) == (texts, texts, len(texts))
    assert [column[place] for place in range(len(texts))] == texts
    assert column[1:].tolist() == texts[1:]
    assert column.length.tolist() == [len(text.encode()) for text in texts]


def test_bytes_that_are_no_text_are_shown_as_such():
    assert Texts.of_bytes([b"a\xff", b"\xc3"]).tolist() == [
        "a\ufffd",
        "\ufffd",
    ]


@given(MANY, st.booleans())
@example(["a", "a\x00", "", "\x00", "a"], False)
def test_different_texts_are_numbered_in_order_of_first_use(texts, repeat):
    texts = texts * (1 + repeat)
    different, place = _in_a_file(texts).distinct()
    assert different == list(dict.fromkeys(texts))
    assert [different[each] for each in place.tolist()] == texts


@given(MANY)
def test_equal_hashes_make_no_equal_texts(texts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MIX", np.uint64(0))  # all texts have the hash 0
        different, place = Texts.of(texts).distinct()
    assert different == list(dict.fromkeys(texts))
    assert [different[each] for each in place.tolist()] == texts


def test_texts_of_any_length_are_told_apart():
    long = "x" * module.LONGEST_HASHED
    texts = [long, long + "a", long + "b", long, long[1:], long + "a"]
    assert Texts.of(texts).distinct()[1].tolist() == [0, 1, 2, 0, 3, 1]


@given(MANY, LETTERS)
def test_a_column_is_asked_for_a_text_or_a_letter(texts, wanted):
    column = _in_a_file([*texts, wanted])
    assert column.are(wanted).tolist() == [text == wanted for text in [*texts, wanted]]
    assert column.hold(":").tolist() == [":" in text for text in [*texts, wanted]]
    assert column.behind_last(":").tolist() == [text.rpartition(":")[2] for text in [*texts, wanted]]


@given(MANY, st.sampled_from(["a", "=b", "a=b", '"ab=:ab=:']))
def test_the_first_place_of_a_text_in_others_is_found(texts, wanted):
    texts = [*texts, wanted, f"a{wanted}{wanted}"]
    column = _in_a_file(texts)
    found = [text.encode().find(wanted.encode()) for text in texts]
    assert np.where(column.first(wanted) < 0, -1, column.first(wanted) - column.begin).tolist() == found


@given(MANY)
def test_lines_are_cut_at_separators(texts):
    lines, cut = lines_of("".join(f"{text}\n" for text in texts).encode() + b"rest")
    assert (lines.tolist(), cut) == (texts, True)
    cells, count = lines.cut(":")
    assert cells.tolist() == [cell for text in texts for cell in text.split(":")]
    assert count.tolist() == [text.count(":") + 1 for text in texts]
    fitting, parts = lines.split(":", 2)
    assert fitting.tolist() == [text.count(":") == 1 for text in texts]
    assert list(zip(*parts, strict=True)) == [
        tuple(text.split(":")) for text in texts if text.count(":") == 1
    ]


NUMBERS = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.integers(0, 10**18 - 1).map(str),
    st.text(alphabet="0123456789+-_ x\u0663", max_size=20),
)


@given(st.lists(NUMBERS, max_size=10))
def test_whole_numbers_are_those_that_python_reads_and_64_bits_hold(texts):
    found = whole(_in_a_file(texts))
    for text, value, good in zip(texts, found.values.tolist(), found.good.tolist(), strict=True):
        try:
            wanted = int(text)
        except ValueError:
            wanted = 2**64
        assert good == (-(2**63) <= wanted < 2**63)
        assert not good or value == wanted


@given(st.lists(st.from_regex(r"\A[0-9]{1,2}[.:][0-9]{2,3}\Z"), max_size=8))
def test_numbers_of_a_form_are_read_where_a_text_has_it(texts):
    fits, (high, low) = of_form("00.00", _in_a_file(texts))
    wanted = [re.fullmatch(r"(\d\d)\.(\d\d)", text) for text in texts]
    assert fits.tolist() == [each is not None for each in wanted]
    pairs = [(int(each[1]), int(each[2])) for each in wanted if each is not None]
    assert list(zip(high.tolist(), low.tolist(), strict=True)) == pairs


@given(MANY)
def test_what_is_done_to_each_text_is_done_to_all(texts):
    column = _in_a_file(texts)
    assert of_each(str.upper, column) == [text.upper() for text in texts]
    lengths = parsed(column, lambda text: len(text) if text else int("no number"))
    assert [v for v, good in zip(lengths.values.tolist(), lengths.good.tolist(), strict=True) if good] == [
        len(text) for text in texts if text
    ]


def test_names_are_numbered_over_several_columns():
    names = Names()
    assert names.codes(Texts.of(["b", "a", "b"])).tolist() == [0, 1, 0]
    assert names.codes_but(Texts.of(["c", "-", "a"]), ("-",)).tolist() == [2, -1, 1]
    assert names.texts == ["b", "a", "c"]
