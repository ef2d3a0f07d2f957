"""The mirror copies every frame once, and without it the tap sees none: real namespaces, real frames."""

from __future__ import annotations

import os
import sys
import time

import pytest

from tapscope.validate.testbed import packages
from tapscope.validate.testbed.net import Network, new_name
from tapscope.validate.testbed.shell import call

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(bool(packages.missing(())), reason="packages are missing"),
]
HOSTS = {"one": "10.77.0.10", "two": "10.77.0.20"}
SEND = """
import socket
udp = socket.socket(type=socket.SOCK_DGRAM)
for _ in range(20):
    udp.sendto(b"x", ("10.77.0.20", 9))
"""


@pytest.mark.parametrize("mirror", [True, False])
def test_the_tap_sees_what_enters_the_bridge_only_through_the_mirror(mirror: bool) -> None:
    with Network(packages.find(()), new_name(), dict(HOSTS), mirror) as network:
        before = network.frames_into_bridge(), network.received("tap", "tap0")
        call(network.inside("one", sys.executable, "-c", SEND))
        time.sleep(0.2)
        entered = network.frames_into_bridge() - before[0]
        seen = network.received("tap", "tap0") - before[1]
        assert entered >= 20
        # The bridge itself floods a question for an address (ARP) to every port of its own; the tap is none.
        assert seen == (entered if mirror else 0)
        assert (network.mirror_method == "none") is not mirror
