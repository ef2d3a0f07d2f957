"""What is in the tree is what gets installed, and the tree is the architecture."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("store", "capture", "reconstruct", "hostmon", "analyze", "validate", "report", "cli")
# In a package folder, but no part of the package: C++ sources, the build's own files, notes for readers.
NOT_INSTALLED = re.compile(
    r"\.(c|cpp|hpp|h|md)$|(^|/)meson\.build$|(^|/)(fuzz|bindings)/|__pycache__|\.pyc$|\.so$|(^|/)vapp/vapp$"
)

# C sources that the testbed compiles where it runs, so that they are part of it.
COMPILED_THERE = re.compile(r"^testbed/vapp/(annotations\.h|lttng\.c|spans\.h)$")


def package_files(folder: str) -> list[str]:
    """Paths, relative to `folder`, of the files in it that belong to the installed package."""
    paths = (
        path.relative_to(ROOT / folder).as_posix() for path in (ROOT / folder).rglob("*") if path.is_file()
    )
    return sorted(path for path in paths if COMPILED_THERE.search(path) or not NOT_INSTALLED.search(path))


def installed_path(folder: str, path: str) -> str:
    """Where the file `path` of `folder` lies under site-packages."""
    if folder == "cli" and path.startswith("package/"):
        return f"tapscope/{path.removeprefix('package/')}"
    return f"tapscope/{folder}/{path}"


def tracked_files() -> list[str]:
    """Paths of all files under version control; skips the test outside a git checkout."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "-z"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [path for path in listing.stdout.split("\0") if path]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_module_is_listed_in_its_meson_build(folder: str) -> None:
    build = (ROOT / folder / "meson.build").read_text(encoding="utf-8")
    listed = set(re.findall(r"'([^'\n]+\.py)'", build))
    modules = {path for path in package_files(folder) if path.endswith(".py")}
    assert modules - listed == set(), "not installed"
    assert listed - modules == set(), "listed, but not there"


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_package_file_is_installed_under_its_import_name(folder: str) -> None:
    try:
        files = importlib.metadata.files("tapscope") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("tapscope is not installed (make install)")
    installed = {file.as_posix() for file in files}
    expected = {installed_path(folder, path) for path in package_files(folder)}
    assert expected - installed == set()


def test_nothing_else_is_installed() -> None:
    try:
        files = importlib.metadata.files("tapscope") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("tapscope is not installed (make install)")
    expected = {installed_path(folder, path) for folder in FOLDERS for path in package_files(folder)}
    inside = {
        file.as_posix() for file in files if file.parts[0] == "tapscope" and "__pycache__" not in file.parts
    }
    extra = {
        path
        for path in inside - expected
        if not re.search(r"/(_(native|kernel|dpdk)\.[^/]+|libtapscope_threads)\.so$|/vapp/vapp$", path)
    }
    assert extra == set()


def test_the_source_distribution_holds_every_tracked_file(tmp_path: Path) -> None:
    tracked = tracked_files()
    pytest.importorskip("mesonpy")
    clone = tmp_path / "clone"
    for name in tracked:
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name, follow_symlinks=False)
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    for command in (["init", "-q"], ["add", "-A", "-f"], [*identity, "commit", "-q", "-m", "tree"]):
        subprocess.run(["git", *command], cwd=clone, check=True, capture_output=True)
    build = subprocess.run(
        [sys.executable, "-c", f"import mesonpy; print(mesonpy.build_sdist({str(tmp_path)!r}))"],
        cwd=clone,
        # meson and ninja lie beside the interpreter of a virtual environment.
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert build.returncode == 0, build.stdout + build.stderr
    archives = list(tmp_path.glob("tapscope-*.tar.gz"))
    with tarfile.open(archives[0]) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in tracked if (ROOT / name).is_file()} - inside == set()


def test_every_folder_of_the_architecture_exists() -> None:
    expected = [*FOLDERS, "pcaps", "tests", "benchmarks", "docs", "setup", "validate/testbed", "cli/package"]
    assert [name for name in expected if not (ROOT / name).is_dir()] == []
    stages = ["source", "decode", "reassemble", "dissect"]
    assert [name for name in stages if not (ROOT / "capture/src" / name).is_dir()] == []


def test_no_folder_at_the_root_shadows_the_package() -> None:
    assert not (ROOT / "tapscope").exists()


def test_no_module_is_named_after_nothing_in_particular() -> None:
    vague = {"utils", "util", "helpers", "helper", "misc", "common", "manager"}
    modules = [f"{folder}/{path}" for folder in FOLDERS for path in package_files(folder)]
    assert [name for name in modules if Path(name).stem in vague] == []


def test_every_imported_package_is_declared() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    requirements = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        requirements += extra
    declared = {re.split(r"[\s<>=!~\[]", line, maxsplit=1)[0].lower() for line in requirements}
    import_names = {"sklearn": "scikit-learn"}
    undeclared = set()
    for folder in FOLDERS:
        for path in package_files(folder):
            if not path.endswith(".py"):
                continue
            for node in ast.walk(ast.parse((ROOT / folder / path).read_text(encoding="utf-8"))):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                    names = [node.module]
                for name in names:
                    top = name.partition(".")[0]
                    if top in sys.stdlib_module_names or top == "tapscope":
                        continue
                    if import_names.get(top, top) not in declared:
                        undeclared.add(f"{folder}/{path}: {top}")
    assert undeclared == set()


def test_no_third_party_code_is_in_the_tree() -> None:
    tracked = tracked_files()
    foreign_folder = re.compile(r"(^|/)(third_party|vendor|vendored|extern|external|node_modules)/")
    assert [name for name in tracked if foreign_folder.search(name)] == []
    notice = re.compile(
        rb"Copyright \(c\)|Licensed under|SPDX-License-Identifier|GNU General Public|MIT License", re.I
    )
    sources = {".py", ".cpp", ".hpp", ".h", ".c", ".js", ".css", ".html", ".java", ".jsp", ".sql", ".sh"}
    marked = [
        name
        for name in tracked
        if Path(name).suffix in sources
        and name != "tests/test_packaging_sources.py"
        and (ROOT / name).is_file()
        and notice.search((ROOT / name).read_bytes())
    ]
    assert marked == []
    too_large = [
        name
        for name in tracked
        if not name.startswith("pcaps/")
        and (ROOT / name).is_file()
        and (ROOT / name).stat().st_size > 300_000
    ]
    assert too_large == [], "a file of this size is hardly written by hand"
