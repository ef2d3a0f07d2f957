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


def example_files() -> dict[str, str]:
    """Path in the repository and content of every file that the document shows."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return dict(re.findall(r"```cpp\n// file: (\S+)\n(.*?)```", text, flags=re.DOTALL))


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
        [compiler, *objects, "-lz", "-lzstd", "-lnghttp2", "-lssl", "-lcrypto", "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert linked.returncode == 0, linked.stderr
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
