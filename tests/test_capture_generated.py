"""Generated captures whose every message is known: clean ones, and that a seed gives the same bytes again."""

from __future__ import annotations

from pathlib import Path

import pytest
from generated import KINDS, generate
from generated_captures import Read, assert_exact


@pytest.mark.parametrize("kind", KINDS)
def test_a_clean_capture_gives_exactly_the_messages_that_were_generated(
    generator: Path, tmp_path: Path, kind: str
) -> None:
    assert_exact(Read(generator, tmp_path, kind, bytes=12e6))


@pytest.mark.parametrize("kind", KINDS)
def test_the_generator_gives_the_same_bytes_for_the_same_seed(
    generator: Path, tmp_path: Path, kind: str
) -> None:
    one, two, other = (tmp_path / name for name in ("one", "two", "other"))
    for path, seed in ((one, 5), (two, 5), (other, 6)):
        generate(generator, kind, path, bytes=1e6, seed=seed, lost=0.002, displaced=0.01, duplicated=0.01)
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes() != other.read_bytes()
