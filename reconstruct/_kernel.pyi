from collections.abc import Mapping
from typing import Any

from tapscope.store.tables import Table

def match_node(parents: Mapping[str, Any], children: Mapping[str, Any], *, draws: int = ...) -> Table:
    """Parent of every child call of one node; the columns are described in kernel/module.cpp."""
