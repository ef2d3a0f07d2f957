"""The example of docs/adding-a-protocol.md compiles and passes its test against the engine as it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/adding-a-protocol.md"
ENGINE = ROOT / "build-tests/capture/libtapscope_capture.a"
"""What `make test` has built for the C++ tests."""


def example_files() -> dict[str, str]:
    """Path in the repository and content of every file that the document shows."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return dict(re.findall(r"```cpp\n// file: (\S+)\n(.*?)```", text, flags=re.DOTALL))


def includes(source: Path, header: str, folder: Path) -> bool:
    """Whether a source includes this header of the folder, itself or by another one."""
    seen, left = {source}, [source]
    while left:
        for name in re.findall(r'#include "([^"]+)"', left.pop().read_text(encoding="utf-8")):
            if name == header:
                return True
            if (path := folder / name) not in seen and path.exists():
                seen.add(path)
                left.append(path)
    return False


def is_of_today(library: Path) -> bool:
    sources = [path for path in (ROOT / "capture/src").rglob("*") if path.is_file()]
    return library.exists() and library.stat().st_mtime > max(path.stat().st_mtime for path in sources)


@pytest.mark.slow
def test_the_walked_example_works(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    files = example_files()
    assert sorted(files) == [
        "capture/src/dissect/memcached.cpp",
        "capture/src/dissect/memcached.hpp",
        "tests/cpp/test_memcached.cpp",
    ]
    shutil.copytree(ROOT / "capture/src", tmp_path / "capture/src")
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")

    # The two lines that the document asks for are there: the example takes the place of what is in the tree.
    registry = (tmp_path / "capture/src/dissect/registry.hpp").read_text()
    assert '#include "dissect/memcached.hpp"' in registry
    assert re.search(r"using AnyDissector =[^;]*MemcachedDissector", registry)

    # The stages below a conversation: what a dissector needs, without sources, decoding and reassembly.
    engine = [
        path
        for path in (tmp_path / "capture/src").rglob("*.cpp")
        if path.parent.name in ("src", "dissect")
        and path.name not in ("pipeline.cpp", "dissection.cpp")
        and not path.name.startswith("memcached_")  # of the longer form, which the example replaces
    ]
    # Of what is built already, only that is built anew which knows the dissector that the example replaces.
    library = [str(ENGINE)] if is_of_today(ENGINE) else []
    if library:
        engine = [
            path for path in engine if includes(path, "dissect/memcached.hpp", tmp_path / "capture/src")
        ]
        assert "conversation.cpp" in {path.name for path in engine}
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
    common = [compiler, "-std=c++20", "-O0", "-I", str(tmp_path / "capture/src")]

    def compiled(source: Path) -> str:
        object_file = tmp_path / f"{source.stem}.o"
        strict = warnings if "memcached" in source.name else []
        command = [*common, *strict, "-c", str(source), "-o", str(object_file)]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stderr
        return str(object_file)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, [*engine, tmp_path / "tests/cpp/test_memcached.cpp"]))
    program = tmp_path / "test_memcached"
    linked = subprocess.run(
        [compiler, *objects, *library, "-lz", "-lzstd", "-lnghttp2", "-lssl", "-lcrypto", "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert linked.returncode == 0, linked.stderr
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
