"""The documents name commands, options, files and folders that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
NAMES = [path.relative_to(ROOT).as_posix() for path in DOCUMENTS]


def shown_commands(text: str) -> list[list[str]]:
    """Words of every `tapscope ...` line in a code block, indented or fenced, without its prompt."""
    commands = []
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
            continue
        stripped = line.strip().removeprefix("$ ")
        if (fenced or line.startswith("    ")) and stripped.startswith("tapscope "):
            commands.append(shlex.split(stripped, comments=True))
    return commands


@pytest.mark.parametrize("document", NAMES)
def test_every_tapscope_command_shown_exists_with_its_options(document: str) -> None:
    from tapscope.cli.main import cli

    context = click.Context(cli)
    for words in shown_commands((ROOT / document).read_text(encoding="utf-8")):
        command: click.Command = cli
        rest = words[1:]
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            found = command.get_command(context, rest[0])
            assert found is not None, " ".join(words)
            command, rest = found, rest[1:]
        options = {name for parameter in command.params for name in parameter.opts + parameter.secondary_opts}
        if "--" in rest:  # what follows is another command's, or files
            rest = rest[: rest.index("--")]
        used = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        assert used - options - {"-h", "--help", "-V", "--version"} == set(), " ".join(words)


@pytest.mark.parametrize("document", NAMES)
def test_every_link_to_a_file_leads_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not ((ROOT / document).parent / target).exists()] == []


def anchors(path: Path) -> set[str]:
    """What links can name in a document: its headings as a forge writes them, without code blocks."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", NAMES)
def test_every_link_to_a_heading_leads_somewhere(document: str) -> None:
    path = ROOT / document
    named = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", path.read_text(encoding="utf-8"))
    local = [
        (path.parent / target if target else path, anchor) for target, anchor in named if "://" not in target
    ]
    assert [anchor for target, anchor in local if anchor not in anchors(target)] == []


@pytest.mark.parametrize("document", NAMES)
def test_every_path_named_in_the_text_exists(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    top = "capture|reconstruct|hostmon|analyze|validate|report|store|cli|pcaps|tests|benchmarks|docs|setup"
    named = re.findall(rf"`((?:{top})/[\w./-]*)`", text)
    assert [name for name in named if "NNNN" not in name and not (ROOT / name).exists()] == []
