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


DISSECTED = (
    Protocol.TLS,
    Protocol.HTTP2,
    Protocol.HTTP,
    Protocol.AJP,
    Protocol.CJDBC,
    Protocol.FASTCGI,
    Protocol.POSTGRES,
    Protocol.REDIS,
    Protocol.MEMCACHED,
    Protocol.MYSQL,
)
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
    RESYNCHRONISED = 64  # first message after a gap, or after what could not be read
    SUSPICIOUS = 128  # ambiguous framing, see RFC 9112 section 11
    ANSWER_LOST = 256  # request whose answer was among bytes that the tap did not see
    SETUP = 512  # opens a session, prepares a statement or asks for a sign of life, for what comes next


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
    SETUP = 128  # opens a session, prepares a statement or asks for a sign of life, for what comes next


class CloseHow(IntEnum):
    """How a connection ended."""

    OPEN = 0
    FIN = 1
    RST = 2
    REUSED = 3  # its port pair was taken by a new connection
    EVICTED = 4  # dropped by the engine at its memory bound
    JUMPED = 5  # one side went on more than 1 GB away: what follows is a connection joined midstream


class TcpEventKind(IntEnum):
    """What TCP did that may have kept somebody waiting."""

    SYN_AGAIN = 1  # nobody had answered the one before
    SYN_ANSWER_AGAIN = 2
    RESENT = 3  # data (or a FIN) again, and nobody had asked: a timer
    RESENT_ASKED = 4  # the receiver had acknowledged twice what it had before
    RESENT_NEEDLESS = 5  # the receiver had acknowledged all of it
    RESENT_UNSEEN = 6  # the first sending never came to the tap
    ZERO_WINDOW = 7  # a full receive buffer, until there was room again
    RST = 8


class TokenKind(IntEnum):
    """What a content token was taken from. `ID_LIKE` is added where the value looks like a propagated id."""

    URI = 1  # whole request target, hashed as one value
    NUMBER = 2
    TEXT = 3
    ENDPOINT = 4  # address and port of the requester's client
    RESULT = 5  # value inside a response
    STATEMENT = 6  # whole statement text, hashed as one value
    WORD = 7  # part of a path that stands in the class


class TapKind(IntEnum):
    """What tells where a packet was copied; the upper bits of tap_point."""

    NONE = 0
    VLAN = 1
    VXLAN = 2
    GENEVE = 3
    NVGRE = 4
    ERSPAN = 5
    MPLS = 6
    PPPOE = 7
    GRE = 8  # without a key
    IP_IN_IP = 9
    TZSP = 10
    GRE_KEY = 128


def tap_point_text(value: int) -> str:
    """Name of a tap point: "vlan 100", "vlan 100.20" (behind the dot the next tag), "vxlan 5001".

    `value` is what the column tap_point holds: 0 for no tag and no tunnel; bit 31 set: the lower 31 bits of a
    GRE key; else the kind in bits 24 to 30 and the id below.
    """
    if value == 0:
        return "untagged"
    if value >> 31:
        return f"gre key {value & 0x7FFFFFFF}"
    kind, number = value >> 24, value & 0xFFFFFF
    if kind not in TapKind.__members__.values():
        return f"unknown {kind}.{number}"
    name = TapKind(kind).name.lower().replace("_", "-")
    if kind == TapKind.VLAN:
        inner = number >> 12
        return f"{name} {number & 0xFFF}" + (f".{inner}" if inner else "")
    if kind in (TapKind.GRE, TapKind.IP_IN_IP, TapKind.TZSP):
        return name
    return f"{name} {number}"


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
