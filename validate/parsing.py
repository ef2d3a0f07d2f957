"""Numbers of whole columns of texts. What is not written as most are gets a look of its own, so that a column
says what reading its texts one by one says."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tapscope.validate.texts import Bools, Ints, Texts

T = TypeVar("T")


@dataclass(frozen=True)
class Parsed:
    """Values of a column, int64; only those that are `good` mean something."""

    values: Ints
    good: Bools


def of_each(function: Callable[[str], T], texts: Texts) -> list[T]:
    """function(text) of every one; texts that repeat are looked at once."""
    different, place = texts.distinct()
    values = [function(text) for text in different]
    return [values[each] for each in place.tolist()]


def parsed(texts: Texts, parse: Callable[[str], int]) -> Parsed:
    """Text by text; one for which `parse` raises is not good."""
    different, place = texts.distinct()
    values, good = np.zeros(len(different), dtype=np.int64), np.ones(len(different), dtype=bool)
    for each, text in enumerate(different):
        try:
            values[each] = parse(text)
        except (ValueError, OverflowError):
            good[each] = False
    return Parsed(values[place], good[place])


def completed(texts: Texts, fits: Bools, values: Ints, parse: Callable[[str], int]) -> Parsed:
    """Values of the texts that fit, and of the others as `parse` gives them one by one."""
    if fits.all():
        return Parsed(values, fits)
    rest = parsed(texts.where(~fits), parse)
    found, good = np.zeros(len(texts), dtype=np.int64), np.ones(len(texts), dtype=bool)
    found[fits] = values
    found[~fits], good[~fits] = rest.values, rest.good
    return Parsed(found, good)


MOST_DIGITS = 19
"""Numbers of so many digits fit 64 bits when the first one is no 9."""


def whole(texts: Texts) -> Parsed:
    """Whole numbers that fit 64 bits, as `int` reads them."""
    fits, values = digits(texts)
    return completed(texts, fits, values[fits], int)


def digits(texts: Texts) -> tuple[Bools, Ints]:
    """Which of the texts are 1 to MOST_DIGITS digits that fit 64 bits, and their values (of the others
    nothing that means something)."""
    length = texts.length
    longest = int(min(length.max(initial=0), MOST_DIGITS))
    found = texts.letters(longest) - np.uint8(ord("0"))  # what is less than '0' wraps to more than 9
    values = np.zeros(len(texts), dtype=np.int64)
    fits = (length > 0) & (length <= MOST_DIGITS)
    if longest == MOST_DIGITS:
        fits &= (length < MOST_DIGITS) | (found[0] < 9)
    least = int(length.min(initial=0)) if len(texts) else 0
    for place in range(longest):
        if place < least:
            fits &= found[place] <= 9
            values = values * 10 + found[place]
        else:
            inside = place < length
            fits &= ~inside | (found[place] <= 9)
            values = np.where(inside, values * 10 + found[place], values)
    return fits, values


def of_form(form: str, texts: Texts) -> tuple[Bools, list[Ints]]:
    """Texts that look like `form`, in which 0 stands for any digit: which do, and for each run of digits the
    numbers of those that do."""
    letters = texts.letters(len(form))
    found = letters - np.uint8(ord("0"))
    places = np.frombuffer(form.encode("ascii"), dtype=np.uint8)
    digit = places == ord("0")
    alike = (texts.length == len(form)) & (found[digit] <= 9).all(axis=0)
    alike &= (letters[~digit] == places[~digit, None]).all(axis=0)
    numbers = []
    for run in re.finditer("0+", form):
        number = np.zeros(len(texts), dtype=np.int64)
        for place in range(*run.span()):
            number = number * 10 + found[place]
        numbers.append(number[alike])
    return alike, numbers
