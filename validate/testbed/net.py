"""Network namespaces joined by a bridge whose frames are mirrored to a tap.

        client   web    app    db          tap
          |eth0   |eth0  |eth0  |eth0        |tap0
   .......|.......|......|......|............|......  namespace "switch"
         client   web    app    db          tap
          +-------+--br0-+------+   mirror ..^

The bridge has a namespace of its own, so that several testbeds can run at once with the same addresses.
Every frame enters the bridge exactly once, at the port of its sender; mirroring each port's ingress therefore
copies every frame exactly once.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from tapscope.store.errors import TapscopeError

from .packages import Paths
from .shell import attempt, call

PREFIX = "tapscope-"
_OFFLOADS = ("rx", "tx", "sg", "tso", "gso", "gro", "lro", "ufo")

# BPF "accept all": one instruction, return -1 (kernel's tc-bpf(8) bytecode notation).
_CLASSIFIERS = {
    "tc matchall": ["protocol", "all", "matchall"],
    "tc bpf": ["protocol", "all", "bpf", "bytecode", "1,6 0 0 4294967295"],
    "tc u32": ["protocol", "all", "u32", "match", "u32", "0", "0"],
}


def new_name() -> str:
    """Unique prefix of one testbed's namespaces."""
    return PREFIX + uuid.uuid4().hex[:6]


@dataclass
class Network:
    """The namespaces of one testbed. Use as a context manager; everything is removed on exit.

    hosts: name -> address in 10.77.0.0/24; mirror: without it the tap sees nothing.
    """

    paths: Paths
    name: str
    hosts: dict[str, str]
    mirror: bool = True
    mirror_method: str = ""

    def namespace(self, host: str) -> str:
        return f"{self.name}-{host}"

    def inside(self, host: str, *argv: str) -> list[str]:
        """argv run inside a host's namespace."""
        return [self.paths.program("ip"), "netns", "exec", self.namespace(host), *argv]

    def on_network_of(self, host: str, *argv: str) -> list[str]:
        """argv run in a host's network, but with this system's /sys: the one of ip-netns has no cgroups."""
        return ["nsenter", f"--net=/run/netns/{self.namespace(host)}", *argv]

    def __enter__(self) -> Network:
        try:
            self._build()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _ip(self, host: str, *argv: str) -> str:
        return call([self.paths.program("ip"), "-n", self.namespace(host), *argv])

    def _build(self) -> None:
        ip = self.paths.program("ip")
        for host in ("switch", *self.hosts, "tap"):
            call([ip, "netns", "add", self.namespace(host)])
            # No IPv6: neighbour discovery would add frames that belong to no request.
            disable = "for f in all default; do echo 1 > /proc/sys/net/ipv6/conf/$f/disable_ipv6; done"
            attempt(self.inside(host, "sh", "-c", disable))
        self._ip("switch", "link", "add", "br0", "type", "bridge", "stp_state", "0", "mcast_snooping", "0")
        self._ip("switch", "link", "set", "br0", "up")
        for host, address in self.hosts.items():
            self._cable(host, "eth0", host)
            self._ip(host, "addr", "add", f"{address}/24", "dev", "eth0")
            self._ip("switch", "link", "set", host, "master", "br0")
        self._cable("tap", "tap0", "tap")
        self._ip("tap", "link", "set", "tap0", "promisc", "on")
        self.mirror_method = self._mirror() if self.mirror else "none"

    def _cable(self, host: str, device: str, port: str) -> None:
        """A veth pair between a host and the switch, without offloads: frames look as on a wire."""
        ip = self.paths.program("ip")
        call(
            [
                ip,
                "-n",
                self.namespace("switch"),
                "link",
                "add",
                port,
                "type",
                "veth",
                "peer",
                "name",
                device,
                "netns",
                self.namespace(host),
            ]
        )
        for where, name in (("switch", port), (host, device)):
            for offload in _OFFLOADS:
                attempt(self.inside(where, self.paths.program("ethtool"), "-K", name, offload, "off"))
            self._ip(where, "link", "set", name, "up")
        self._ip(host, "link", "set", "lo", "up")

    def _mirror(self) -> str:
        """Installs the first kind of mirror that this kernel knows, and says which."""
        ports = list(self.hosts)
        switch = self.namespace("switch")
        tc = [self.paths.program("tc"), "-n", switch]
        if all(attempt([*tc, "qdisc", "add", "dev", port, "clsact"]).returncode == 0 for port in ports):
            action = ["action", "mirred", "egress", "mirror", "dev", "tap"]
            for method, classifier in _CLASSIFIERS.items():
                added = [
                    attempt([*tc, "filter", "add", "dev", port, "ingress", *classifier, *action]).returncode
                    == 0
                    for port in ports
                ]
                if all(added):
                    return method
                for port in ports:
                    attempt([*tc, "filter", "del", "dev", port, "ingress"])
        # A bridge that forgets addresses at once floods each frame to all other ports, the tap's among them.
        if (
            attempt(
                [self.paths.program("ip"), "-n", switch, "link", "set", "tap", "master", "br0"]
            ).returncode
            == 0
        ):
            self._ip("switch", "link", "set", "br0", "type", "bridge", "ageing_time", "0")
            return "bridge flooding"
        raise TapscopeError(
            "this kernel can neither mirror a port (tc matchall, bpf, u32) nor flood a bridge",
            remedy="Load the modules sch_ingress, cls_matchall and act_mirred.",
        )

    def received(self, host: str, device: str) -> int:
        """Frames that a device has received since it was made (the kernel's interface counter)."""
        text = call(self.inside(host, "cat", f"/sys/class/net/{device}/statistics/rx_packets"))
        return int(text)

    def listen_counters(self, host: str) -> dict[str, int]:
        """Full accept queues so far: overflows (a handshake found no place) and drops (SYNs lost so).

        The kernel's TcpExt counters of the host's namespace (/proc/net/netstat).
        """
        lines = call(self.inside(host, "cat", "/proc/net/netstat")).splitlines()
        names, values = (line.split()[1:] for line in lines if line.startswith("TcpExt:"))
        found = dict(zip(names, values, strict=True))
        return {"overflows": int(found["ListenOverflows"]), "drops": int(found["ListenDrops"])}

    def frames_into_bridge(self) -> int:
        """Frames that entered the bridge at any host's port: what the mirror must copy."""
        return sum(self.received("switch", port) for port in self.hosts)

    def remove(self) -> None:
        remove_namespaces(self.paths.program("ip"), self.name)


def remove_namespaces(ip: str, name: str) -> list[str]:
    """Ends what still runs in the namespaces of one testbed and deletes them. Returns their names."""
    listed = attempt([ip, "netns", "list"]).stdout.splitlines()
    mine = [line.split()[0] for line in listed if line.split() and line.split()[0].startswith(name + "-")]
    for namespace in mine:
        pids = attempt([ip, "netns", "pids", namespace]).stdout.split()
        if pids:
            attempt(["kill", "-KILL", *pids])
    for namespace in mine:
        attempt([ip, "netns", "del", namespace])
    return mine
