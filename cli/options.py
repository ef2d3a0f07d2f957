"""Options and argument types that several commands share."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from tapscope.cli.output import parse_duration_ns, parse_size_bytes
from tapscope.store.codes import DISSECTED
from tapscope.store.errors import TapscopeError

Decorator = Callable[[Any], Any]


def path_option(*names: str, **more: Any) -> Decorator:
    """click.option whose value is a path."""
    return click.option(*names, type=click.Path(path_type=Path), **more)


def set_option(*names: str, **more: Any) -> Decorator:
    """click.option that has a value in any case; its help says which."""
    return click.option(*names, show_default=True, **more)


def choice_option(name: str, choices: Iterable[str], **more: Any) -> Decorator:
    """The same; its value is one of these."""
    return set_option(name, type=click.Choice(list(choices)), **more)


RUN = click.argument("run_path", metavar="RUN.db", type=click.Path(path_type=Path))
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
RAW_CLOCKS = click.option(
    "--raw-clocks",
    is_flag=True,
    help="Take the times of host logs as they were logged (see `tapscope hosts clocks`).",
)


KEEP_TEXT = click.option(
    "--keep-text",
    is_flag=True,
    help="Also keep one raw text per class (it may hold private data).",
)


TLS_KEYLOG = click.option(
    "--tls-keylog",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Secrets of TLS connections, as SSLKEYLOGFILE writes them.",
)


class Duration(click.ParamType):  # type: ignore[type-arg]  # older click has no argument here
    """A length of time with its unit; int ns."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_duration_ns(value)
        except TapscopeError as error:
            self.fail(str(error), param, ctx)


def time_option(*names: str, **more: Any) -> Decorator:
    """`set_option` whose value is a length of time."""
    return set_option(*names, type=Duration(), **more)


class Size(click.ParamType):  # type: ignore[type-arg]  # older click has no argument here
    """An amount of data with its unit; int bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_size_bytes(value)
        except TapscopeError as error:
            self.fail(str(error), param, ctx)


class PortMap(click.ParamType):  # type: ignore[type-arg]  # older click has no argument here
    """PORT=PROTOCOL, several with commas; dict of port to protocol name."""

    name = "port=protocol"
    protocols = tuple(known.name.lower() for known in DISSECTED)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[int, str]:
        if isinstance(value, dict):
            return value
        ports: dict[int, str] = {}
        for pair in filter(None, value.split(",")):
            port, _, protocol = pair.partition("=")
            if not port.strip().isdigit() or not 0 < int(port) < 65536:
                self.fail(f"{port!r} is no TCP port; write for example 8009=ajp.", param, ctx)
            if protocol.strip().lower() not in self.protocols:
                known = ", ".join(self.protocols)
                self.fail(f"{protocol!r} is no protocol that tapscope reads ({known}).", param, ctx)
            ports[int(port)] = protocol.strip().lower()
        return ports


PORT_MAP = click.option(
    "--port-map",
    type=PortMap(),
    default="",
    metavar="PORT=PROTOCOL,...",
    help="Protocol of ports that are not recognised: " + ", ".join(PortMap.protocols) + ".",
)


class Addresses(click.ParamType):  # type: ignore[type-arg]  # older click has no argument here
    """ADDRESS,ADDRESS,...: addresses of one server; tuple of at least two texts as tables have them."""

    name = "addresses"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        found = []
        for text in value.split(","):
            try:
                found.append(str(ipaddress.ip_address(text.strip())))
            except ValueError:
                self.fail(f"{text.strip()!r} is no IP address.", param, ctx)
        if len(set(found)) < 2:
            self.fail("name at least two addresses, with a comma between them.", param, ctx)
        return tuple(found)


SAME_NODE = click.option(
    "--same-node",
    "same_nodes",
    type=Addresses(),
    multiple=True,
    metavar="ADDRESS,ADDRESS[,...]",
    help="These addresses are one server: it is called by one and calls by another (several network cards, "
    "a load balancer, translated addresses). May be given several times.",
)


class Number(click.FloatRange):
    """A number within bounds. Unlike that of click, it takes no `nan`, which is outside of none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is no number.", param, ctx)
        return number


class Share(Number):
    """A share of a whole: 0.005, or 0.5%."""

    name = "share"

    def __init__(self) -> None:
        super().__init__(0, 1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or not value.strip().endswith("%"):
            return super().convert(value, param, ctx)
        percent = Number(0, 100).convert(value.strip()[:-1], param, ctx)
        return percent / 100


TLS_KEYLOG_WAIT = time_option(
    "--tls-keylog-wait",
    "tls_keylog_wait_ns",
    default="2s",
    help="While packets come, a TLS connection waits so long for secrets that are not in the key log yet.",
)
