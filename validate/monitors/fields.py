"""Lines of fields `name=value`, which may stand in any order and are separated by blanks, with a request line
in quotation marks among them that users wrote and that could fake a field.

Nearly all lines of a log have the same fields in the same order as its first one. These are taken apart
together; every other line by itself, by the rule that all follow (`of_line`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tapscope.validate.monitors.lines import outside_quotes
from tapscope.validate.texts import Bools, Ints, Texts, bytes_of

NOTHING = "-"
"""Text of a cell that a line does not have, as servers write it."""

_BLANK, _QUOTE, _EQUALS = (ord(letter) for letter in ' "=')


class Fields:
    """Takes lines apart into the cells of fields with these names."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._field = re.compile(rf"(?:^| )({'|'.join(names)})=(\S*)")

    def of_line(self, text: str) -> dict[str, str]:
        """The fields of one line; of one that it has twice the last."""
        return dict(self._field.findall(outside_quotes(text)))

    def cells(self, lines: Texts) -> dict[str, Texts]:
        """Per name the cell of every line, NOTHING where it has none."""
        like_first, begin, end = self._like_the_first(lines)
        others = np.flatnonzero(~like_first)
        rows = [self.of_line(lines[place]) for place in others.tolist()]
        found: list[bytes] = [
            row.get(name, NOTHING).encode("utf-8", "replace") for name in self._names for row in rows
        ]
        data = bytes_of(lines.data.tobytes(), *found, NOTHING.encode())
        high = len(lines.data) + np.cumsum([len(cell) for cell in found], dtype=np.int64)
        low = high - np.array([len(cell) for cell in found], dtype=np.int64)
        nothing = len(lines.data) + sum(map(len, found))
        cells = {}
        for number, name in enumerate(self._names):
            here = slice(number * len(rows), (number + 1) * len(rows))
            columns = []
            for of_name, of_others, missing in ((begin, low, nothing), (end, high, nothing + len(NOTHING))):
                column = np.full(len(lines), missing, dtype=np.int64)
                if name in of_name:
                    column[like_first] = of_name[name]
                column[others] = of_others[here]
                columns.append(column)
            cells[name] = Texts(data, *columns)
        return cells

    def _like_the_first(self, lines: Texts) -> tuple[Bools, dict[str, Ints], dict[str, Ints]]:
        """Which lines have the fields of the first plain one in its order, and where the cells of these begin
        and end, by name."""
        plain, quoted = _plain(lines)
        if not plain.any():
            return plain, {}, {}
        data = lines.data
        cuts, of_cut = _outside(lines, quoted, np.flatnonzero(data == _BLANK))
        equals, _ = _outside(lines, quoted, np.flatnonzero(data == _EQUALS))
        # A token is what stands between two blanks outside the quotation marks.
        count = np.bincount(of_cut, minlength=len(lines))
        model = int(np.argmax(plain))
        width = int(count[model]) + 1
        like = plain & (count + 1 == width)
        in_like = cuts[like[of_cut]]
        in_like = in_like.reshape(np.count_nonzero(like), width - 1)
        begin = np.column_stack([lines.begin[like], in_like + 1])
        end = np.column_stack([in_like, lines.end[like]])
        named = np.zeros(begin.shape, dtype=bool)  # which tokens hold an equals sign
        flat = np.searchsorted(begin.ravel(), equals, side="right") - 1
        inside = (flat >= 0) & (equals < end.ravel()[np.maximum(flat, 0)])
        named.ravel()[flat[inside]] = True
        same = np.ones(len(begin), dtype=bool)
        cells: dict[str, tuple[Ints, Ints]] = {}
        for place in range(width):
            token = Texts(data, begin[:, place], end[:, place])
            if not named[0, place]:
                same &= ~named[:, place]
                continue
            name = token[0].partition("=")[0]
            prefix = np.frombuffer(f"{name}=".encode(), dtype=np.uint8)
            same &= (token.letters(len(prefix)) == prefix[:, None]).all(axis=0)
            cells[name] = (token.begin + len(prefix), token.end)
        like[like] = same
        return like, *({name: cell[side][same] for name, cell in cells.items()} for side in (0, 1))


def _plain(lines: Texts) -> tuple[Bools, tuple[Ints, Ints]]:
    """Lines of ASCII without control characters whose quoted part stands between blanks, and where the quoted
    part of each line begins and ends (without one: behind the line)."""
    data = lines.data
    quotes = np.flatnonzero(data == _QUOTE)
    low, high = np.searchsorted(quotes, lines.begin), np.searchsorted(quotes, lines.end)
    has = high - low >= 2
    padded = np.append(quotes, 0)
    first = np.where(has, padded[np.minimum(low, len(quotes))], lines.end)
    last = np.where(has, padded[np.maximum(high - 1, 0)], lines.end)
    alone = ~has | (
        ((first == lines.begin) | (data[np.maximum(first - 1, 0)] == _BLANK))
        & ((last + 1 == lines.end) | (data[np.minimum(last + 1, len(data) - 1)] == _BLANK))
    )
    _, odd = _outside(lines, (first, last), np.flatnonzero((data - np.uint8(_BLANK)) > 126 - _BLANK))
    alone[odd] = False
    return alone, (first, last)


def _outside(lines: Texts, quoted: tuple[Ints, Ints], places: Ints) -> tuple[Ints, Ints]:
    """Those of these places that are in a line and not in its quoted part, and in which line."""
    places, line = lines.inside(places)
    outside = (places < quoted[0][line]) | (places > quoted[1][line])
    return places[outside], line[outside]
