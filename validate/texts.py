"""Columns of texts as places in the bytes of a file: what is done to a column is done to all of its texts at
once, and only what differs from most becomes a Python string.

Cells are bytes of UTF-8; what is no UTF-8 is shown with replacement characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import overload

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

WORD = 8
"""Bytes that are looked at together. So many behind the last text belong to no text."""

LONGEST_HASHED = 32 * WORD
"""Texts that are longer are told apart one by one."""

_KEPT = np.array([(1 << 8 * count) - 1 for count in range(WORD)] + [(1 << 64) - 1], dtype=np.uint64)
"""By number of bytes: which bits of a word they are (the first byte is the lowest)."""

_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def bytes_of(*parts: bytes) -> NDArray[np.uint8]:
    """The bytes of `Texts`: these parts, and what `Texts` may look at behind them."""
    return np.frombuffer(b"".join((*parts, bytes(WORD))), dtype=np.uint8)


@dataclass(frozen=True, eq=False)
class Texts(Sequence[str]):
    """Texts that stand at [begin, end) of `data` (bytes_of)."""

    data: NDArray[np.uint8]
    begin: Ints
    end: Ints

    @classmethod
    def of(cls, texts: Sequence[str]) -> Texts:
        """A column of texts that stood nowhere."""
        return cls.of_bytes([text.encode("utf-8", "replace") for text in texts])

    @classmethod
    def of_bytes(cls, parts: Sequence[bytes]) -> Texts:
        """The same of texts as bytes."""
        end = np.fromiter(accumulate(map(len, parts)), dtype=np.int64, count=len(parts))
        return cls(bytes_of(*parts), end - np.fromiter(map(len, parts), np.int64, len(parts)), end)

    def __len__(self) -> int:
        return len(self.begin)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Texts: ...
    def __getitem__(self, place: int | slice) -> str | Texts:
        if isinstance(place, slice):
            return Texts(self.data, self.begin[place], self.end[place])
        return self.data[self.begin[place] : self.end[place]].tobytes().decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def tolist(self) -> list[str]:
        """Python's strings."""
        data = self.data.tobytes()
        return [
            data[low:high].decode("utf-8", "replace")
            for low, high in zip(self.begin.tolist(), self.end.tolist(), strict=True)
        ]

    def where(self, chosen: Bools | Ints) -> Texts:
        """Some of them, by mask or by place."""
        return Texts(self.data, self.begin[chosen], self.end[chosen])

    def emptied(self) -> Texts:
        """As many empty texts."""
        return Texts(self.data, self.begin, self.begin)

    def instead(self, chosen: Bools, others: Texts) -> Texts:
        """The same with the others, which stand in the same bytes, in the chosen places."""
        assert self.data is others.data
        begin, end = (
            np.where(chosen, *pair) for pair in ((others.begin, self.begin), (others.end, self.end))
        )
        return Texts(self.data, begin, end)

    def cut(self, separator: str) -> tuple[Texts, Ints]:
        """The parts of all of them, one after the other, and into how many each was cut. They must stand in
        order."""
        places, text = self.inside(np.flatnonzero(self.data == ord(separator)))
        count = np.bincount(text, minlength=len(self)) + 1
        last = np.cumsum(count) - 1
        begin, end = np.empty((2, int(count.sum())), dtype=np.int64)
        ends_text = np.zeros(len(end), dtype=bool)
        ends_text[last] = True
        begins_text = np.append(True, ends_text[:-1])[: len(begin)]
        begin[begins_text], begin[~begins_text] = self.begin, places + 1
        end[ends_text], end[~ends_text] = self.end, places
        return Texts(self.data, begin, end), count

    def split(self, separator: str, width: int) -> tuple[Bools, list[Texts]]:
        """Each of them at every separator: which have `width` parts, and of these a column per part."""
        places = np.flatnonzero(self.data == ord(separator))
        low, high = np.searchsorted(places, self.begin), np.searchsorted(places, self.end)
        whole = high - low == width - 1
        cuts = (
            places[low[whole, None] + np.arange(width - 1)]
            if whole.any()
            else places[:0].reshape(0, width - 1)
        )
        begin = np.column_stack([self.begin[whole], cuts + 1])
        end = np.column_stack([cuts, self.end[whole]])
        return whole, [Texts(self.data, begin[:, part], end[:, part]) for part in range(width)]

    @property
    def length(self) -> Ints:
        """Bytes of each."""
        return self.end - self.begin

    def letters(self, count: int) -> NDArray[np.uint8]:
        """A row per place from 0 to `count`, a column per text; 0 behind a text's end."""
        words = np.stack([self._word(place) for place in range(0, max(count, 1), WORD)], axis=1)
        return words.view(np.uint8).reshape(len(self), WORD * words.shape[1])[:, :count].T

    def _word(self, place: int) -> NDArray[np.uint64]:
        """The bytes of every text from this place on as a number; 0 behind its end."""
        all_words = np.ndarray(len(self.data) - WORD + 1, "<u8", self.data, strides=(1,))
        words = all_words[np.minimum(self.begin + place, len(all_words) - 1)]
        return words & _KEPT[np.clip(self.end - self.begin - place, 0, WORD)]

    def are(self, text: str) -> Bools:
        """Which of them are this text?"""
        wanted = np.frombuffer(text.encode(), dtype=np.uint8)
        found = self.length == len(wanted)
        if len(wanted) and found.any():
            found &= (self.letters(len(wanted)) == wanted[:, None]).all(axis=0)
        return found

    def hold(self, letter: str) -> Bools:
        """In which of them is this letter?"""
        places = np.flatnonzero(self.data == ord(letter))
        return np.searchsorted(places, self.begin) < np.searchsorted(places, self.end)

    def behind_last(self, letter: str) -> Texts:
        """What stands behind the last such letter in each of them; all of it where there is none."""
        places = np.flatnonzero(self.data == ord(letter))
        if not len(places):
            return self
        last = places[np.maximum(np.searchsorted(places, self.end) - 1, 0)] + 1
        begin = np.where((last > self.begin) & (last <= self.end), last, self.begin)
        return Texts(self.data, begin, self.end)

    def first(self, literal: str) -> Ints:
        """Where in `data` each of them has this for the first time; -1 where it has not."""
        wanted = literal.encode()
        places = np.flatnonzero(self.data == wanted[0])
        there = Texts(self.data, places, np.minimum(places + len(wanted), len(self.data) - WORD))
        places = np.append(places[there.are(literal)], len(self.data))
        place = places[np.searchsorted(places, self.begin)]
        return np.where(place + len(wanted) <= self.end, place, -1)

    def inside(self, places: Ints) -> tuple[Ints, Ints]:
        """Those of these places (in order) that are in one of the texts, and in which. The texts must stand
        in order."""
        low, high = np.searchsorted(places, self.begin), np.searchsorted(places, self.end)
        count = high - low
        text = np.repeat(np.arange(len(self)), count)
        if len(text) == len(places):
            return places, text
        skipped = low - (np.cumsum(count) - count)
        return places[np.arange(len(text)) + np.repeat(skipped, count)], text

    def distinct(self) -> tuple[list[str], Ints]:
        """The different ones in order of first use, and for every text its place among them."""
        first, code = self._first_and_code()
        order = np.argsort(first, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        return self.where(first[order]).tolist(), place[code]

    def _first_and_code(self) -> tuple[Ints, Ints]:
        """By hashes; compared with the first of its hash, every text must prove to be the same."""
        length = self.length
        longest = int(length.max(initial=0))
        if longest <= LONGEST_HASHED:
            words = [self._word(place) for place in range(0, longest, WORD)]
            mixed = length.astype(np.uint64)
            for word in words:
                mixed = (mixed ^ word) * _MIX
                mixed ^= mixed >> _SHIFT
            _, first, code = np.unique(mixed, return_index=True, return_inverse=True)
            own = first[code]
            if (length == length[own]).all() and all((word == word[own]).all() for word in words):
                return first, code
        codes: dict[str, int] = {}
        one_by_one = np.array([codes.setdefault(text, len(codes)) for text in self.tolist()], dtype=np.int64)
        return np.unique(one_by_one, return_index=True)[1], one_by_one


def lines_of(block: bytes) -> tuple[Texts, bool]:
    """The whole lines of a file's bytes, without \\r at their ends, and whether there is more behind them."""
    data = bytes_of(block)
    end = np.flatnonzero(data == ord("\n"))
    begin = np.append(0, end[:-1] + 1)[: len(end)]
    cut = len(block) > (end[-1] + 1 if len(end) else 0)
    while (carried := (end > begin) & (data[end - 1] == ord("\r"))).any():
        end = end - carried
    return Texts(data, begin, end), cut


def next_of(places: Ints, at: Ints, none: int) -> Ints:
    """For every `at` the first of these places (in order) that is not before it; `none`: there is none."""
    return np.append(places, none)[np.searchsorted(places, at)]
