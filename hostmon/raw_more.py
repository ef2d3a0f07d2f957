"""Records of Collectl raw files beside CPU, disk, network, memory, TCP and processes: buddies, interrupts,
inodes, NUMA nodes, sockets, slabs, NFS, InfiniBand, Lustre and sensors.

Collectl writes a tag before each line of the kernel's file; the tags are those of Collectl 4.3. Counters
get a rate per second beside them; gauges stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tapscope.hostmon.rows import Rows, numeric
from tapscope.hostmon.samples import HostTable
from tapscope.store.dynamic import folded

DENTRY = ("dentries", "dentries_unused", "dentry_age_limit", "dentry_want_pages", "dentries_negative")
INODE = ("inodes", "inodes_free")
FILES = ("files", "files_free", "files_max")
SLAB = ("objects_active", "objects", "object_bytes", "objects_per_slab", "pages_per_slab")
SLAB_DATA = ("slabs_active", "slabs")
NFS_3 = (
    "null",
    "getattr",
    "setattr",
    "lookup",
    "access",
    "readlink",
    "read",
    "write",
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "remove",
    "rmdir",
    "rename",
    "link",
    "readdir",
    "readdirplus",
    "fsstat",
    "fsinfo",
    "pathconf",
    "commit",
)
NFS_2 = (
    "null",
    "getattr",
    "setattr",
    "root",
    "lookup",
    "readlink",
    "read",
    "wrcache",
    "write",
    "create",
    "remove",
    "rename",
    "link",
    "symlink",
    "mkdir",
    "rmdir",
    "readdir",
    "fsstat",
)
NFS: dict[str, dict[str, tuple[str, ...]]] = {
    "rpc": {
        "c": ("calls", "retransmissions", "auth_refresh"),
        "s": ("calls", "bad_calls", "bad_format", "bad_auth", "bad_client"),
    },
    "net": {
        "c": ("packets", "udp", "tcp", "tcp_connections"),
        "s": ("packets", "udp", "tcp", "tcp_connections"),
    },
}
LUSTRE = re.compile(r"(LLITE|LLITE_RA|LLITE_RPC|LLDET|OST|OST-b|LUS-d|MDS)[_:]?[\w:]*$")
STATISTIC = re.compile(r"(\S+)\s+(\d+) samples \[(\w+)\](?: (\d+) (\d+) (\d+))?")
COUNTERS: dict[str, Callable[[str], bool]] = {
    "collectl_interrupt": lambda name: name.startswith("cpu") or name == "all",
    "collectl_numa": lambda name: name.startswith(("numa_", "interleave", "local_node", "other_node")),
    "collectl_nfs": lambda name: True,
    "collectl_infiniband": lambda name: True,
    "collectl_lustre": lambda name: True,
}
KEYS = {"buddy": "zone", "interrupt": "interrupt", "numa": "node", "slab": "slab", "nfs": "side",
        "infiniband": "port", "lustre": "of", "sensor": "sensor"}  # fmt: skip
UNITS = {"object_bytes": "bytes", "objects": "objects", "slabs": "slabs"}


class MoreRecords:
    """Rows of these records. Fields of one thing may stand on several lines of a sample."""

    def __init__(self) -> None:
        self.rows: dict[str, Rows] = {}
        self.open: dict[tuple[str, str], dict[str, Any]] = {}
        self.resets = 0

    def line(self, word: str, rest: str) -> bool:
        """Take a line; False when its tag is not known. ValueError or IndexError when it is damaged."""
        if word == "buddy":
            node, _, zone = rest.partition(", zone")
            name, *free = zone.split()
            number = node.split()[1]
            self._row("buddy", f"{number} {name}", {f"free_order_{i}": int(n) for i, n in enumerate(free)})
        elif word == "int":
            self._interrupt(rest)
        elif word.startswith("fs-"):
            names = {"fs-ds": DENTRY, "fs-is": INODE, "fs-fnr": FILES}.get(word)
            if names is None:
                return False
            self._row("inode", "", dict(zip(names, map(int, rest.split()), strict=False)))
        elif word in ("numai", "numas"):
            self._numa(rest)
        elif word == "sock":
            proto, _, values = rest.partition(":")
            words = values.split()
            fields = {f"{proto}_{name}".lower(): int(value) for name, value in
                      zip(words[::2], words[1::2], strict=True)}  # fmt: skip
            self._row("sock", "", fields)
        elif word == "Slab":
            self._slab(rest)
        elif word.startswith(("nfsc-", "nfss-")):
            self._nfs(word[3], word[5:], rest.split())
        elif re.match(r"ib\d+-\d+:", word):
            port, _, name = word.rstrip(":").partition(":")
            counts = [int(value, 0) for value in rest.split()]
            named = {name if len(counts) == 1 else f"{name}_{i}": count for i, count in enumerate(counts)}
            self._row("infiniband", port, named)
        elif word == "ipmi:":
            name, value, unit, status = [*rest.strip().split(","), "", "", ""][:4]
            amount = float(value) if re.fullmatch(r"-?\d+(\.\d+)?", value.strip()) else None
            self._row(
                "sensor", name.strip(), {"value": amount, "unit": unit.strip(), "status": status.strip()}
            )
        elif LUSTRE.match(word):
            self._lustre(word, rest.strip())
        else:
            return False
        return True

    def _row(self, kind: str, key: str, fields: dict[str, Any]) -> None:
        self.open.setdefault((kind, key), {}).update(fields)

    def _interrupt(self, rest: str) -> None:
        name, _, values = rest.partition(":")
        words = values.split()
        counts = []
        for word in words:
            if not word.isdigit():
                break
            counts.append(int(word))
        if not counts:
            raise ValueError(rest)
        fields: dict[str, Any] = {"all": sum(counts)}
        fields |= {f"cpu{i}": count for i, count in enumerate(counts)}
        fields["what"] = " ".join(words[len(counts) :])
        self._row("interrupt", name.strip(), fields)

    def _numa(self, rest: str) -> None:
        words = rest.replace(":", "").split()
        if words[0] != "Node":
            raise ValueError(rest)
        self._row("numa", words[1], {words[2]: int(words[3])})

    def _slab(self, rest: str) -> None:
        if ": tunables" in rest:
            first, _, last = rest.partition(": tunables")
            name, *values = first.split()
            fields = dict(zip(SLAB, map(int, values), strict=True))
            fields |= dict(zip(SLAB_DATA, map(int, last.partition(": slabdata")[2].split()[:2]), strict=True))
        else:  # /sys/slab: one value a line
            name, file, value = rest.split()[:3]
            fields = {file: int(value)}
        self._row("slab", name, fields)

    def _nfs(self, side: str, record: str, values: list[str]) -> None:
        numbers = [int(float(value)) for value in values]
        if record.startswith("proc"):  # the first number says how many follow
            numbers = numbers[1:]
            known: tuple[str, ...] = {"proc2": NFS_2, "proc3": NFS_3}.get(record, ())
        else:
            known = NFS.get(record, {}).get(side, ())
        names = [*known, *(str(i) for i in range(len(known), len(numbers)))]
        fields = {f"{record}_{name}": n for name, n in zip(names, numbers, strict=False)}
        self._row("nfs", "client" if side == "c" else "server", fields)

    def _lustre(self, tag: str, rest: str) -> None:
        statistic = STATISTIC.match(rest)
        if statistic:
            name = folded(statistic[1])
            fields = {name: int(statistic[2])}
            if statistic[6]:
                fields[f"{name}_sum"] = int(statistic[6])
        else:  # a line of a histogram, or a name with one number
            numbers = re.findall(r"(?<![\w.])\d+(?![\w.%])", rest)
            label = folded(re.split(r"[\s:]", rest, maxsplit=1)[0])
            if not numbers:
                raise ValueError(rest)
            fields = {f"{label}_{i}" if len(numbers) > 1 else label: int(n) for i, n in enumerate(numbers)}
        self._row("lustre", tag.rstrip(":"), fields)

    def finish_sample(self, at: int) -> None:
        """The sample taken at `at` ns ends here."""
        for (kind, key), fields in self.open.items():
            name = f"collectl_{kind}"
            if name not in self.rows:
                self.rows[name] = Rows(name, KEYS.get(kind, ""), _unit)
            self.rows[name].add(at, tuple(fields), list(fields.values()), key)
        self.open = {}

    def tables(self) -> list[HostTable]:
        """Every table that has rows."""
        made = []
        for kind, rows in self.rows.items():
            table, series, columns = rows.table_and_columns()
            counts = COUNTERS.get(kind)
            for name, values in columns.items():
                amount = numeric(values)
                if counts is not None and counts(name) and amount is not None:
                    table.add(f"{folded(name)}_per_s", series.rate(amount), "1/s", "")
            self.resets += series.resets
            made.append(table)
        return made


def _unit(name: str) -> str:
    if name.startswith("free_order_"):
        return "blocks"
    return UNITS.get(
        name, "KiB" if name.startswith(("Mem", "Active", "Inactive", "Anon", "Mapped", "Slab")) else ""
    )
