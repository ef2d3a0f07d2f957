"""Small integers that columns hold, by name. The C++ engine has the same ones (a test compares them)."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class Protocol(IntEnum):
    """Application protocol of a connection, message or call."""

    UNKNOWN = 0
    HTTP = 1
    AJP = 2
    MYSQL = 3
    CJDBC = 4
    POSTGRES = 5
    FASTCGI = 6
    HTTP2 = 7
    TLS = 8
    REDIS = 9
    MEMCACHED = 10
    AVATICA = 11  # JDBC over HTTP
    GRPC = 12  # calls over HTTP/2


DISSECTED = (Protocol.HTTP, Protocol.AJP, Protocol.MYSQL)
"""Protocols whose messages the engine reads; the ones that a port map may name."""


class Direction(IntEnum):
    """Way of a message on its connection."""

    TO_SERVER = 0
    TO_CLIENT = 1


class MessageKind(IntEnum):
    """Role of a message."""

    REQUEST = 0
    RESPONSE = 1
    INTERIM = 2  # 1xx of HTTP, CPONG of AJP: answers nothing
    ONE_WAY = 3  # has no answer by protocol: MySQL greeting, COM_QUIT, COM_STMT_CLOSE, AJP CPING


class MessageFlag(IntFlag):
    """What is special about a message."""

    NONE = 0
    TRUNCATED = 1  # bytes missing inside: a gap, or cut by the snap length
    INFERRED = 2  # grammar guessed: the start of the connection was not seen
    RETRANSMITTED = 4  # at least one of its segments was sent more than once
    OPAQUE = 8  # framed but not understood (for example encrypted)
    ERROR = 16  # the response reports an error (HTTP 5xx, MySQL ERR)
    UNFINISHED = 32  # the capture or connection ended inside it
    RESYNCHRONISED = 64  # first message after a gap
    SUSPICIOUS = 128  # ambiguous framing, see RFC 9112 section 11
    ANSWER_LOST = 256  # request whose answer was among bytes that the tap did not see


class CallFlag(IntFlag):
    """What is special about a call."""

    NONE = 0
    UNANSWERED = 1  # no response seen; depart_ns is -1
    LOST_RESPONSE = 2  # the response fell into a gap; depart_ns is -1
    INCOMPLETE = 4  # a message of it has missing bytes
    ERROR = 8
    INFERRED = 16
    RETRANSMITTED = 32
    CLIPPED = 64  # reaches over the edge of the capture


class CloseHow(IntEnum):
    """How a connection ended."""

    OPEN = 0
    FIN = 1
    RST = 2
    REUSED = 3  # its port pair was taken by a new connection
    EVICTED = 4  # dropped by the engine at its memory bound


class TokenKind(IntEnum):
    """What a content token was taken from. `ID_LIKE` is added where the value looks like a propagated id."""

    URI = 1  # whole request target, hashed as one value
    NUMBER = 2
    TEXT = 3
    ENDPOINT = 4  # address and port of the requester's client
    RESULT = 5  # value inside a response
    STATEMENT = 6  # whole statement text, hashed as one value


ID_LIKE = 0x80
"""Bit in evidence.kind: UUID, long hex or base64, ...: ignored with `--evidence noids`."""


class LinkKind(IntEnum):
    """What is known about the parent of a call."""

    ROOT = 0
    LINKED = 1
    UNKNOWN = 2


class EvidenceMode(IntEnum):
    """How much content the matcher may use (`--evidence`)."""

    ALL = 0
    NOIDS = 1
    TIMING = 2
