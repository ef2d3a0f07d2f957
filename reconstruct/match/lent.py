"""The connections that a pool lends out, where they are not the TCP connections.

Avatica speaks HTTP, whose connections are shared by all requests of the driver. What a pool lends is the
logical connection: every call names it (`connectionId`), from openConnection to closeConnection. It is the
session of the protocol, as a TCP connection is that of MySQL, and not an id that one tier hands on to the
next.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tapscope.capture import _native
from tapscope.store.codes import Protocol
from tapscope.store.tables import Table

CONNECTION_NAME = "connectionId"
FIRST_LOGICAL = 2**61
"""Far behind the rows of connections."""


def lent_connections(calls: Table, evidence: Table) -> NDArray[np.int64]:
    """By call: the connection that was lent for it; numbers from FIRST_LOGICAL on are logical ones. A logical
    connection has the same number whichever calls are given."""
    conn = calls["conn"].astype(np.int64)
    avatica = np.flatnonzero(calls["protocol"] == Protocol.AVATICA)
    if not len(avatica):
        return conn
    named = np.flatnonzero(evidence["slot"] == _native.slot_of_name(CONNECTION_NAME))
    named = named[np.argsort(evidence["message"][named], kind="stable")]
    message = evidence["message"][named]
    at = np.searchsorted(message, calls["request"][avatica])
    found = at < len(named)
    found[found] = message[at[found]] == calls["request"][avatica[found]]
    name = evidence["hash"][named][at[found]]
    conn[avatica[found]] = (name % np.uint64(FIRST_LOGICAL)).astype(np.int64) + FIRST_LOGICAL
    return conn
