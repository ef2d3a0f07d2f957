from collections.abc import Mapping
from typing import Any

from tapscope.store.tables import Table

class NodeStream:
    """Parents of the child calls of one node, as a stream; the columns are described in kernel/module.cpp."""

    def __init__(
        self,
        *,
        draws: int = ...,
        first_stretch: int = ...,
        stretch: int = ...,
        ahead: int = ...,
        window: int = ...,
    ) -> None: ...
    def push(self, parents: Mapping[str, Any], children: Mapping[str, Any]) -> None: ...
    def advance(self, now: int) -> None: ...
    def finish(self) -> None: ...
    def take(self) -> Table: ...
    def counters(self) -> dict[str, int]: ...
