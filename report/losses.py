"""Counters of oddities with words, so that a reader need not know the engine to see what was lost."""

from __future__ import annotations

STAGES = {
    "source": "reading the capture",
    "decode": "decoding packets",
    "ip": "IP",
    "tcp": "TCP",
    "stream": "putting streams together",
    "reassemble": "putting streams together",
    "http": "HTTP",
    "ajp": "AJP",
    "mysql": "MySQL",
    "pair": "pairing requests and responses",
    "evidence": "content evidence",
    "match": "matching calls",
    "reconstruct": "reconstruction",
    "host": "host logs",
    "hostmon": "host logs",
    "events": "event-monitor logs",
}
"""First part of a counter's name -> the stage that counts."""


def stage(name: str) -> str:
    """Stage that counted, in words."""
    return STAGES.get(name.partition(".")[0], name.partition(".")[0])


def words(name: str) -> str:
    """What a counter counts: its name's last part as a phrase."""
    rest = name.partition(".")[2] or name
    phrase = rest.replace("_", " ").replace(".", ": ")
    return phrase[:1].upper() + phrase[1:]
