"""The set-up scripts: what they do without root, with packages missing, and on other distributions.

The scripts run for real, with a PATH that holds the few standard tools they use and stand-ins for the
system's package commands, which note how they were called.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("sh", "cat", "dirname", "env", "grep", "head", "mkdir", "python3", "sed", "sort", "tail", "tr")
CANDIDATES = {"chromium", "chromium-driver", "pkgconf", "openjdk-17-jdk-headless"}


def wanted(*sets: str) -> list[list[str]]:
    """The alternatives of each package of the sets, as setup/packages lists them."""
    groups = []
    for line in (ROOT / "setup/packages").read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if fields and fields[0] in sets:
            groups.append(fields[1].split("|"))
    return groups


class System:
    """A PATH of its own with stand-ins for id, dpkg-query, apt-cache and apt-get."""

    def __init__(self, folder: Path, installed: set[str], uid: int = 1000, has_apt: bool = True) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.calls.touch()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None, tool
            (folder / tool).symlink_to(found)
        self.command("id", f"echo {uid}")
        if has_apt:
            cases = "".join(f"  {name}) printf installed ;;\n" for name in sorted(installed))
            self.command("dpkg-query", f'case "$4" in\n{cases}  *) exit 1 ;;\nesac')
            names = "|".join(sorted(CANDIDATES))
            self.command(
                "apt-cache",
                f'case "$2" in {names}) echo "  Candidate: 1.0" ;; *) echo "  Candidate: (none)" ;; esac',
            )
            self.command("apt-get", f'echo "apt-get $*" >>"{self.calls}"; exit 100')

    def command(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(ROOT / command[0]), *command[1:]],
            env={"PATH": str(self.folder), "HOME": str(self.folder), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


# One alternative of each group, as a system has them.
ALL = {group[0] for group in wanted("demo", "test", "fuzz")}


def test_nothing_is_said_and_no_root_is_needed_when_everything_is_there(tmp_path: Path) -> None:
    system = System(tmp_path, installed=ALL)
    done = system.run("setup/system-packages", "demo", "test", "fuzz")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert system.calls.read_text() == ""


def test_any_alternative_of_a_package_will_do(tmp_path: Path) -> None:
    system = System(tmp_path, installed={group[-1] for group in wanted("demo", "test", "fuzz")})
    assert system.run("setup/system-packages", "demo", "test", "fuzz").returncode == 0


def test_without_root_one_message_names_exactly_what_is_missing(tmp_path: Path) -> None:
    system = System(tmp_path, installed=ALL - {"libpcap-dev", "tshark", "pkgconf"})
    done = system.run("setup/system-packages", "demo", "test")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[0].split(": ")[-1].split() == ["libpcap-dev", "pkgconf", "tshark"]
    assert "apt-get install --no-install-recommends libpcap-dev pkgconf tshark" in done.stderr
    assert system.calls.read_text() == "", "apt-get was called without root"


def test_the_demo_does_not_ask_for_what_only_the_tests_need(tmp_path: Path) -> None:
    system = System(tmp_path, installed={group[0] for group in wanted("demo")})
    assert system.run("setup/system-packages", "demo").returncode == 0
    assert system.run("setup/system-packages", "demo", "test").returncode == 1


def test_a_system_without_apt_is_told_what_to_install(tmp_path: Path) -> None:
    system = System(tmp_path, installed=set(), has_apt=False)
    done = system.run("setup/system-packages", "demo")
    assert done.returncode == 1
    assert "no apt-get" in done.stderr
    assert "libpcap-dev" in done.stderr
    assert "SYSTEM_PACKAGES=skip" in done.stderr
    assert system.run("setup/system-packages", "demo", SYSTEM_PACKAGES="skip").returncode == 0


def test_a_python_without_venv_or_headers_is_passed_over(tmp_path: Path) -> None:
    system = System(tmp_path, installed=ALL)
    system.command("old-python", "exit 1")
    found = system.run("setup/find-python", PYTHON="old-python")
    assert found.returncode == 0
    assert Path(found.stdout.strip()).name != "old-python"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the set-up scripts and an environment that setup/venv made there. The Python that is
    found from then on makes one by copying that, which takes less time."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "setup", folder / "setup")
    subprocess.run([folder / "setup/venv"], check=True, capture_output=True)
    shutil.copytree(folder / ".venv", folder / "made", symlinks=True)
    for name, body in [
        ("python", f'case "$1" in -m) exec cp -a "{folder}/made" "$3" ;; esac; echo Python'),
        ("setup/find-python", f'echo "{folder}/python"'),
    ]:
        (folder / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize(
    "lines",
    [
        'VIRTUAL_ENV="{0}"\nexport VIRTUAL_ENV',  # Python 3.11
        '    export VIRTUAL_ENV=$(cygpath "{0}")\nelse\n    export VIRTUAL_ENV="{0}"',  # 3.12
        "    export VIRTUAL_ENV=$(cygpath {0})\nelse\n    export VIRTUAL_ENV={0}",  # 3.13, and Ubuntu's 3.12
    ],
)
def test_an_environment_is_kept_where_it_was_made_and_made_anew_elsewhere(checkout: Path, lines: str) -> None:
    activate = checkout / ".venv/bin/activate"

    def run_as_if_made_in(folder: str) -> str:
        activate.write_text(lines.format(folder) + "\n", encoding="utf-8")
        return subprocess.run([checkout / "setup/venv"], check=True, capture_output=True, text=True).stdout

    assert run_as_if_made_in(f"{checkout}/.venv") == ""
    assert "Making the virtual environment" in run_as_if_made_in("/elsewhere/.venv")
    assert activate.read_bytes() == (checkout / "made/bin/activate").read_bytes()


def test_every_script_parses_and_is_executable() -> None:
    scripts = [path for path in (ROOT / "setup").glob("[!_]*") if path.read_bytes().startswith(b"#!/bin/sh")]
    assert len(scripts) >= 10
    for script in [*scripts, ROOT / ".ci/run"]:
        assert os.access(script, os.X_OK), script
        shell = "bash" if script.name == "run" else "sh"
        checked = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, ""), script


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", text, flags=re.MULTILINE))


@pytest.mark.parametrize(
    "document",
    sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]),
)
def test_every_make_command_of_the_documents_exists(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^ {4}|`)make ([a-z][a-z-]*)", text, flags=re.MULTILINE))
    assert named - make_targets() == set()


def test_the_readme_shows_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in text
    assert "make test" in text


def test_continuous_integration_runs_the_tests_and_the_linters() -> None:
    lines = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    assert {"make lint", "make sanitize", "make test"} <= set(lines)
    assert lines[-1] == "make test", "pytest's closing line must come last"
