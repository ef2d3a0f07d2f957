"""The unit for systemd: started with the rights that it grants and no others, its command captures."""

from __future__ import annotations

import configparser
import json
import os
import pwd
import shlex
import time
from pathlib import Path

import pytest
from cli_program import wait_for
from live_network import COMMAND, environment, let_others_through, network, stop
from systemd_space import systemd, why_not

from tapscope.capture import read_spool

UNIT = Path(__file__).parent.parent / "setup/tapscope-capture@.service"


def unit() -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser


def test_the_unit_grants_one_capability() -> None:
    service = unit()["Service"]
    assert service["AmbientCapabilities"] == service["CapabilityBoundingSet"] == "CAP_NET_RAW"
    assert service["NoNewPrivileges"] == "yes"
    assert service["User"] == "tapscope"


def test_the_command_of_the_unit_captures_with_that_right_alone(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    state = tmp_path / "state"
    state.mkdir()
    let_others_through(tmp_path)
    state.chmod(0o777)
    (state / "tapscope").mkdir(mode=0o777)
    (state / "tapscope").chmod(0o777)
    command = unit()["Service"]["ExecStart"].replace("%i", "tap0").replace("%S", str(state))
    words = shlex.split(command)[1:]
    rights = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
    rights += ["--bounding-set=-all,+net_raw", "--inh-caps=-all,+net_raw", "--ambient-caps=-all,+net_raw"]
    with network() as net:
        service = net.start(
            net.server_space, *rights, *COMMAND, *words, "--json", stdout=-1, stderr=-1, env=environment()
        )
        wait_for(lambda: (state / "tapscope/tap0.spool/manifest.json").exists())
        time.sleep(0.3)
        assert net.client(40).wait(timeout=30) == 0
        time.sleep(0.3)
        out, errors = stop(service)
        assert service.returncode == 0, errors
    tables = read_spool(state / "tapscope/tap0.spool")
    assert int((tables.messages["kind"] == 0).sum()) == 40
    assert json.loads(out)["dropped_by_kernel"] == 0


@pytest.mark.root
@pytest.mark.skipif(
    "TAPSCOPE_TEST_SYSTEMD" not in os.environ, reason="starts a systemd of its own: TAPSCOPE_TEST_SYSTEMD=1"
)
def test_systemd_runs_the_unit_with_all_that_it_forbids(tmp_path: Path) -> None:
    if why_not():
        pytest.skip(why_not())
    name = "tapscope-capture@tap0"
    with network() as net, systemd(net.server_space, UNIT, tmp_path) as system:
        let_others_through(tmp_path)
        system.ctl("start", name)
        wait_for(lambda: (tmp_path / "tapscope/tap0.spool/manifest.json").exists())
        assert system.shows(name, "ActiveState") == "active"
        status = system.run("cat", f"/proc/{system.shows(name, 'MainPID')}/status")
        said = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        time.sleep(0.5)
        assert net.client(40).wait(timeout=30) == 0
        time.sleep(0.5)
        system.ctl("stop", name)
        assert system.shows(name, "Result") == "success"
        assert system.shows(name, "NRestarts") == "0"
    assert set(said["Uid"].split()) == {"987"}
    assert int(said["CapBnd"], 16) == 1 << 13, "CAP_NET_RAW and no other"
    assert int(said["CapEff"], 16) == 0, "given up, as the interface is open"
    assert said["NoNewPrivs"] == "1"
    tables = read_spool(tmp_path / "tapscope/tap0.spool")
    assert int((tables.messages["kind"] == 0).sum()) == 40
