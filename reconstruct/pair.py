"""Messages to calls: a request with the response that the engine found for it."""

from __future__ import annotations

import numpy as np

from tapscope.store.codes import CallFlag, MessageFlag, MessageKind
from tapscope.store.tables import Table, check, empty


def calls(connections: Table, messages: Table) -> Table:
    """One row per request message, in order of arrival; a request without a response is kept and flagged.

    LOST_RESPONSE where the engine found that the answer was among bytes that the tap did not see, UNANSWERED
    where nothing speaks for an answer.

    Several responses to one request (which no protocol here allows, but a tap sees bad input) count as one
    that ends with the last. `client_node` and `server_node` are -1 until `topology.find` fills them.
    """
    check("connections", connections)
    check("messages", messages)
    kind = messages["kind"]
    requests = np.flatnonzero(kind == MessageKind.REQUEST)
    requests = requests[np.argsort(messages["begin_ns"][requests], kind="stable")]
    if len(requests) == 0:
        return empty("calls")
    responses = np.flatnonzero((kind == MessageKind.RESPONSE) & (messages["request"] >= 0))

    response_of = np.full(len(kind), -1, dtype=np.int64)
    begin_of = np.full(len(kind), np.iinfo(np.int64).max, dtype=np.int64)
    answered = messages["request"][responses]
    response_of[answered] = responses  # the last one stays
    np.minimum.at(begin_of, answered, messages["begin_ns"][responses])

    # The last one-way message that names a request gives it up.
    gives_up = np.flatnonzero((kind == MessageKind.ONE_WAY) & (messages["request"] >= 0))
    gone_of = np.full(len(kind), -1, dtype=np.int64)
    gone_of[messages["request"][gives_up]] = messages["begin_ns"][gives_up]

    response = response_of[requests]
    has = response >= 0
    at = np.where(has, response, 0)
    request_flags = messages["flags"][requests]
    both_flags = request_flags | np.where(has, messages["flags"][at], 0).astype(np.uint32)
    conn = messages["conn"][requests]
    flags = np.zeros(len(requests), dtype=np.uint32)
    lost = ~has & ((request_flags & np.uint32(MessageFlag.ANSWER_LOST)) != 0)
    flags[~has & ~lost] |= np.uint32(CallFlag.UNANSWERED)
    flags[lost] |= np.uint32(CallFlag.LOST_RESPONSE)
    for seen, meant in (
        (MessageFlag.TRUNCATED, CallFlag.INCOMPLETE),
        (MessageFlag.ERROR, CallFlag.ERROR),
        (MessageFlag.INFERRED, CallFlag.INFERRED),
        (MessageFlag.RETRANSMITTED, CallFlag.RETRANSMITTED),
        (MessageFlag.UNFINISHED, CallFlag.CLIPPED),
        (MessageFlag.SETUP, CallFlag.SETUP),
    ):
        flags[(both_flags & np.uint32(seen)) != 0] |= np.uint32(meant)
    unfilled = np.full(len(requests), -1, dtype=np.int32)
    return {
        "conn": conn,
        "request": requests,
        "response": response,
        "client_node": unfilled,
        "server_node": unfilled.copy(),
        "protocol": messages["protocol"][requests],
        "class_id": messages["class_id"][requests],
        "arrive_ns": messages["begin_ns"][requests],
        "request_end_ns": messages["end_ns"][requests],
        "response_begin_ns": np.where(has, begin_of[requests], -1),
        "depart_ns": np.where(has, messages["end_ns"][at], -1),
        "status": np.where(has, messages["status"][at], -1).astype(np.int32),
        "flags": flags,
        "tcp_seq": messages["tcp_seq"][requests],
        "response_bytes": np.where(
            has & (messages["missing_bytes"][at] == 0), messages["wire_bytes"][at].astype(np.int64), -1
        ),
        "gone_ns": np.where(has, -1, gone_of[requests]),
    }
