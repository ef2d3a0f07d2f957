"""Event monitors in the configuration trees of Debian's packages: put in, checked by the servers, taken
out."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from web_answers import answer, free_port

from tapscope.cli import main
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.validate import events
from tapscope.validate.monitors.install import changes
from tapscope.validate.monitors.install.changes import Block, Link, OwnFile
from tapscope.validate.monitors.install.servers import SERVERS
from tapscope.validate.testbed import avatica as middleware
from tapscope.validate.testbed import packages


def tree_of(name: str, tmp_path: Path) -> Path:
    """A copy of the package's configuration."""
    source = SERVERS[name].tree()
    if name == "avatica":
        try:
            source = middleware.jars(packages.find(("mvn",)))
        except TapscopeError as error:
            pytest.skip(str(error))
    if not source.is_dir():
        pytest.skip(f"{name} is not installed")
    if name == "tomcat":  # its conf/ is a link to /etc
        (tmp_path / source.name / "lib").mkdir(parents=True)
        shutil.copytree(source / "conf", tmp_path / source.name / "conf")
        return tmp_path / source.name
    return Path(shutil.copytree(source, tmp_path / source.name, symlinks=True))


def snapshot(root: Path) -> dict[str, tuple[int, bytes | str]]:
    """Everything in a tree: mode, and content or target."""
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(root.rglob("*"))
    }


def run(*arguments: object) -> int:
    """Exit status of a command line in this process."""
    return int(main.run(["monitors", *map(str, arguments)]))


@pytest.mark.parametrize("name", SERVERS)
def test_installing_twice_is_installing_once_and_removing_restores_every_byte(name, tmp_path, capsys):
    root = tree_of(name, tmp_path)
    before = snapshot(root)
    assert run("check", "--server", name, "--into", root) == ExitCode.ERROR
    assert run("install", "--server", name, "--into", root) == ExitCode.DONE
    once = snapshot(root)
    assert once != before
    capsys.readouterr()
    run("check", "--server", name, "--into", root, "--json")
    assert json.loads(capsys.readouterr().out)[0]["state"] == "installed"
    run("install", "--server", name, "--into", root)
    assert snapshot(root) == once
    run("install", "--server", name, "--into", root, "--remove")
    assert snapshot(root) == before
    assert run("install", "--server", name, "--into", root, "--remove") == ExitCode.DONE


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("flag", ["--print", "--dry-run"])
def test_looking_changes_nothing_and_shows_every_line(name, flag, tmp_path, capsys):
    root = tree_of(name, tmp_path)
    before = snapshot(root)
    run("install", "--server", name, "--into", root, flag)
    shown = capsys.readouterr().out
    assert snapshot(root) == before
    run("install", "--server", name, "--into", root)
    for path, (_, content) in snapshot(root).items():
        if isinstance(content, bytes) and content[:2] != b"PK" and before.get(path, (0, b""))[1] != content:
            new = set(content.decode().splitlines()) - set(
                bytes(before.get(path, (0, b""))[1]).decode().splitlines()
            )
            assert all(line in shown for line in new)


def served(argv: list[str], url: str, environment: dict[str, str] | None = None) -> list[str]:
    """Bodies of three answers of a server in the foreground, which is ended then."""
    # In a session of its own: httpd ends its whole process group.
    server = subprocess.Popen(
        argv, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        bodies = [answer(url), answer(url, X_Request_ID="given-1"), answer(url)]
    finally:
        server.terminate()
        _, said = server.communicate(timeout=60)
    assert server.returncode == 0, said
    return bodies


def test_a_stock_httpd_logs_four_stamps_and_an_id_that_it_makes_itself(tmp_path):
    root = tree_of("apache", tmp_path)
    run("install", "--server", "apache", "--into", root)
    port = free_port()
    (root / "ports.conf").write_text(f"Listen 127.0.0.1:{port}\n")
    names = ("LOG_DIR", "RUN_DIR", "LOCK_DIR")
    environment = {**os.environ, **{f"APACHE_{name}": str(tmp_path / "logs") for name in names}}
    environment |= {"APACHE_RUN_USER": "www-data", "APACHE_RUN_GROUP": "www-data"}
    environment["APACHE_PID_FILE"] = str(tmp_path / "pid")
    (tmp_path / "logs").mkdir()
    argv = ["apache2", "-d", str(root), "-f", str(root / "apache2.conf"), "-D", "FOREGROUND"]
    served(argv, f"http://127.0.0.1:{port}/server-status", environment)
    (tmp_path / "events").mkdir()
    for name in ("tapscope_access.log", "error.log"):
        (tmp_path / "logs" / name).rename(tmp_path / "events" / name)
    found = events.load(tmp_path / "events")
    assert found.tiers() == ["web"]
    ids = [found.request_ids[code] for code in found.calls["request_id"]]
    assert ids[1] == "given-1"
    assert len(set(ids)) == 3
    assert len(ids[0]) >= 20, "mod_unique_id's"
    calls, below = found.calls, found.downstream
    assert below["call"].tolist() == [0, 1, 2], "mod_log_debug's line, in the error log's own format"
    sent = below["send_ns"] - calls["arrive_ns"]
    assert ((sent >= 0) & (below["send_ns"] <= calls["depart_ns"])).all()


def test_a_stock_nginx_logs_and_hands_its_id_on(tmp_path):
    root = tree_of("nginx", tmp_path)
    run("install", "--server", "nginx", "--into", root)
    front, back = free_port(), free_port()
    for file in [root / "nginx.conf", *(root / "conf.d").iterdir()]:
        text = file.read_text().replace("/etc/nginx", str(root)).replace("/var/log/nginx", str(tmp_path))
        # Modules are in packages of their own, whose paths are not in this tree.
        text = re.sub(r"include .*modules-enabled.*", "daemon off;", text)
        file.write_text(text.replace("/run/nginx.pid", f"{tmp_path}/pid"))
    (root / "sites-enabled" / "default").unlink()
    (root / "sites-enabled" / "site").write_text(
        f"server {{ listen 127.0.0.1:{front}; location / {{ proxy_pass http://127.0.0.1:{back}; }} }}\n"
        f'server {{ listen 127.0.0.1:{back}; access_log off; return 200 "$http_x_request_id"; }}\n'
    )
    argv = ["nginx", "-c", str(root / "nginx.conf"), "-e", str(tmp_path / "error.log")]
    bodies = served(argv, f"http://127.0.0.1:{front}/")
    assert bodies[1] == "given-1"
    assert all(re.fullmatch("[0-9a-f]{32}", body) for body in (bodies[0], bodies[2]))
    (tmp_path / "logs").mkdir()
    (tmp_path / "tapscope.log").rename(tmp_path / "logs" / "tapscope.log")
    found = events.load(tmp_path / "logs")
    # Each worker process writes its own line when the answer is out already: within a millisecond, in any
    # order.
    assert sorted(found.request_ids[code] for code in found.calls["request_id"]) == sorted(bodies)


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("slow_log", "slow-query-log TRUE"),
        ("performance_schema", "performance-schema-consumer-events-statements-history-long TRUE"),
    ],
)
def test_mariadb_accepts_what_it_gets(tmp_path, log, line):
    root = tree_of("mariadb", tmp_path)
    run("install", "--server", "mariadb", "--into", root, "--log", log)
    argv = ["mariadbd", f"--defaults-file={root}/mariadb.conf.d/99-tapscope.cnf", "--help", "--verbose"]
    done = subprocess.run([*argv, "--user=root"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert line in re.sub(r" {2,}", " ", done.stdout)


def test_a_site_with_logs_of_its_own_is_named(tmp_path, capsys):
    root = tmp_path
    (root / "conf.d").mkdir()
    (root / "sites-enabled").mkdir()
    (root / "sites-enabled" / "shop").write_text("server {\n    access_log off;\n}\n")
    assert run("install", "--server", "nginx", "--into", root) == ExitCode.DONE
    assert f"{root}/sites-enabled/shop has access_log of its own" in capsys.readouterr().err
    assert run("check", "--server", "nginx", "--into", root) == ExitCode.ERROR


def test_a_file_that_is_not_ours_is_left_alone(tmp_path):
    (tmp_path / "conf-available").mkdir()
    theirs = tmp_path / "conf-available" / "tapscope.conf"
    theirs.write_text("# my own\n")
    wanted = [OwnFile("conf-available/tapscope.conf", f"# {changes.MARK}\n")]
    for remove in (False, True):
        with pytest.raises(TapscopeError, match="tapscope has not made"):
            changes.steps(tmp_path, wanted, remove=remove)
    assert theirs.read_text() == "# my own\n"


def test_a_link_that_points_elsewhere_is_left_alone(tmp_path):
    (tmp_path / "here").symlink_to("elsewhere")
    with pytest.raises(TapscopeError):
        changes.steps(tmp_path, [Link("here", "there")])
    assert all(step.done for step in changes.steps(tmp_path, [Link("here", "there")], remove=True))


def test_a_block_moves_with_its_anchor_and_what_users_changed_around_it_stays(tmp_path):
    file = tmp_path / "server.xml"
    file.write_text("<Host>\n  <a/>\n</Host>\n")
    file.chmod(0o640)
    block = Block("server.xml", "<Valve/>", before="</Host>", comment=("<!-- ", " -->"))
    changes.carry_out(tmp_path, changes.steps(tmp_path, [block]))
    marked = "<!-- tapscope monitors: begin -->\n<Valve/>\n<!-- tapscope monitors: end -->\n"
    assert file.read_text() == f"<Host>\n  <a/>\n{marked}</Host>\n"
    assert file.stat().st_mode & 0o777 == 0o640
    file.write_text(file.read_text().replace("<a/>", "<b/>"))
    changes.carry_out(tmp_path, changes.steps(tmp_path, [block], remove=True))
    assert file.read_text() == "<Host>\n  <b/>\n</Host>\n"


def test_a_block_without_its_end_is_an_error_and_not_a_deleted_rest(tmp_path):
    (tmp_path / "x").write_text("# tapscope monitors: begin\nours\ntheirs\n")
    with pytest.raises(TapscopeError, match="is missing"):
        changes.steps(tmp_path, [Block("x", "ours")], remove=True)


def test_a_missing_tree_and_an_unknown_log_are_the_users_mistake(tmp_path, capsys):
    assert run("install", "--server", "nginx", "--into", tmp_path / "none") == ExitCode.ERROR
    assert "--into" in capsys.readouterr().err
    assert run("install", "--server", "mariadb", "--log", "tea") == ExitCode.USAGE
    assert run("install", "--server", "nginx", "--server", "apache", "--into", tmp_path) == ExitCode.USAGE


def test_the_list_names_every_server_and_what_is_changed_in_it(capsys):
    run("list")
    told = capsys.readouterr().out
    assert all(server.changed in told and server.tells in told for server in SERVERS.values())
