"""Which links are too unsure to be made."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.store.codes import LinkKind
from tapscope.store.tables import Table


@dataclass(frozen=True)
class Refusal:
    """Refused are links whose probability is below `min_probability`, and of the rest, from the least sure
    on, as many as it takes until at most the share `max_wrong_joins` of those that are left is expected to be
    wrong. Links that are equally sure are refused together.

    What is expected is what the probabilities say (1 - their mean), so it is as good as their calibration.
    """

    min_probability: float = 0.0
    max_wrong_joins: float = 1.0

    def least(self, probability: NDArray[np.float64]) -> float:
        """The probability from which on a link is made, given those of all links (any order); 0..1, or
        just above what is refused as a whole."""
        sure = np.sort(probability[probability >= self.min_probability])[::-1]
        wrong = np.cumsum(1.0 - sure) / np.arange(1, len(sure) + 1)
        # The share grows with every link that is less sure than those before it.
        made = int(np.searchsorted(wrong, self.max_wrong_joins, side="right"))
        if made == len(sure):
            return self.min_probability
        return float(np.nextafter(sure[made], 2.0))

    def unsure(self, links: Table, leave: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """Which of the links (rows of kind LINKED, but for those to `leave` out) are refused."""
        linked = links["kind"] == LinkKind.LINKED
        if leave is not None:
            linked &= ~leave
        return linked & (links["probability"] < self.least(links["probability"][linked]))


NOTHING_REFUSED = Refusal()


def unlink(links: Table, rows: NDArray[np.bool_]) -> None:
    """Take links back: their parent becomes the runner-up, and who it is is unknown."""
    links["runner_up"][rows] = links["parent"][rows]
    links["runner_up_probability"][rows] = links["probability"][rows]
    links["parent"][rows] = -1
    links["kind"][rows] = LinkKind.UNKNOWN
