"""Captures by DPDK: how a device is named, and what the environment abstraction layer is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tapscope.store.errors import TapscopeError

if TYPE_CHECKING:
    from tapscope.capture import _native

PREFIX = "dpdk:"

CLOCK = "see ts_resolution: the driver's stamp, or the system's clock once per burst"

QUIET = ("--no-shconf", "--no-telemetry", "--log-level=warning")
VIRTUAL = ("--no-huge", "-m", "512", "--no-pci")

AF_PACKET_RING = {"blocksz": "1048576", "framesz": "2048", "framecnt": "65536"}
"""net_af_packet with its own default loses packets in bursts and counts none of them; with this ring it lost
none in the same test."""


def eal_arguments(device: str, queues: int = 1) -> tuple[list[str], str]:
    """Arguments for `device`, and the kernel interface behind it ("" if there is none).

    `device` is a PCI address ("0000:3b:00.0"), or a virtual device with its arguments as DPDK writes them
    ("net_af_packet0,iface=eth1", "net_pcap0,rx_pcap=FILE"); a virtual one needs no hugepages and no PCI.
    """
    if not device.startswith("net_"):
        return [*QUIET, "-a", device], ""
    name, *words = device.split(",")
    given = dict(word.partition("=")[::2] for word in words)
    if name.startswith("net_af_packet"):
        own = AF_PACKET_RING | ({"qpairs": str(queues)} if queues > 1 else {})
        words = [f"{key}={value}" for key, value in own.items() if key not in given] + words
    vdev = ",".join([name, *words])
    return [*QUIET, *VIRTUAL, f"--vdev={vdev}"], given.get("iface", "")


def open_device(
    device: str,
    *,
    queues: int,
    promiscuous: bool,
    salt: bytes,
    keep_text: bool,
    port_map: Mapping[int, int],
    handed_over: bool,
    tls_keylog: str,
    tls_key_wait_ns: int,
) -> _native.Capture:
    """A capture on `device`; DPDK can be set up once in a process. Raises TapscopeError or SourceError."""
    try:
        from tapscope.capture import _dpdk
    except ImportError as error:
        raise TapscopeError(
            f"this tapscope has no DPDK: {error}",
            remedy="Install libdpdk-dev and build again, or capture on the kernel's interface.",
        ) from None
    eal, interface = eal_arguments(device, queues)
    return _dpdk.Capture.of_device(
        eal=eal,
        device=PREFIX + device,
        interface=interface,
        queues=queues,
        promiscuous=promiscuous,
        salt=salt,
        keep_text=keep_text,
        port_map=port_map,
        handed_over=handed_over,
        tls_keylog=tls_keylog,
        tls_key_wait_ns=tls_key_wait_ns,
    )
