"""Reference of the command line, made from the commands themselves: docs/commands.md and the man pages.

`python -m tapscope.cli.manual DOCS` writes them into the docs folder; a test compares them with what is
committed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from tapscope.cli.main import COMMANDS, SHORT_HELP, cli
from tapscope.store.errors import ExitCode

EXIT_MEANING = {
    ExitCode.DONE: "done",
    ExitCode.ERROR: "error: one message on stderr says what, where, and what to do",
    ExitCode.USAGE: "wrong use of the command line, or a mistake in what was asked for",
    ExitCode.LOW_QUALITY: "done, but the quality of the input is below the threshold",
    ExitCode.VALIDATION_FAILED: "validation failed: tap and event monitors disagree",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C; what was stored before stays readable",
}


def commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command with its full name ("trace", "testbed run", ...), groups before their members."""
    root = click.Context(cli, info_name="tapscope")
    waiting = [(name, cli.get_command(root, name), root) for name in reversed(COMMANDS)]
    while waiting:
        full, command, parent = waiting.pop()
        assert command is not None, full
        context = click.Context(command, info_name=full.split()[-1], parent=parent)
        yield full, command, context
        if isinstance(command, click.Group):
            members = [
                (f"{full} {name}", command.get_command(context, name), context)
                for name in command.list_commands(context)
            ]
            waiting.extend(reversed(members))


def described(command: click.Command) -> list[str]:
    """Paragraphs of a command's help; one that begins with a backspace is kept as it is (without it)."""
    text = (command.help or "").replace("\r", "").strip()
    paragraphs = []
    for part in re.split(r"\n\s*\n", text):
        if part.lstrip().startswith("\b"):
            lines = part.lstrip().removeprefix("\b").strip("\n").split("\n")
            indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
            paragraphs.append("\b" + "\n".join(line[indent:] for line in lines))
        else:
            paragraphs.append(" ".join(part.split()))
    return paragraphs


def option_rows(command: click.Command) -> list[tuple[str, str]]:
    """(names, help) of every option but --help. Not click's own words: they change between its versions."""
    rows = []
    for option in command.params:
        if not isinstance(option, click.Option) or option.hidden:
            continue
        names = ", ".join([*option.opts, *option.secondary_opts])
        notes = ["required"] if option.required else []
        if option.show_default:
            notes.append(f"default: {option.default}")
        shown = f" [{', '.join(notes)}]" if notes else ""
        value = "" if option.is_flag else f" {value_name(option)}"
        rows.append((f"{names}{value}", f"{option.help or ''}{shown}"))
    return rows


def value_name(parameter: click.Parameter) -> str:
    """How the value of an option or argument is written."""
    if parameter.metavar:
        return parameter.metavar
    if isinstance(parameter.type, click.Choice):
        return f"{{{'|'.join(map(str, parameter.type.choices))}}}"
    if isinstance(parameter, click.Argument):
        return str(parameter.name).upper()
    names = {"integer range": "N", "integer": "N", "float range": "X", "float": "X"}
    return names.get(parameter.type.name, parameter.type.name.upper())


def usage(command: click.Command, context: click.Context) -> str:
    """The usage line."""
    words = [context.command_path, "[OPTIONS]"]
    words += [value_name(parameter) for parameter in command.params if isinstance(parameter, click.Argument)]
    return " ".join([*words, *(["COMMAND [ARGS]..."] if isinstance(command, click.Group) else [])])


def commands_md() -> str:
    """The text of docs/commands.md."""
    out = [
        "# Commands",
        "",
        "Made from the program by `python -m tapscope.cli.manual docs`; a test fails when they differ.",
        "",
        "Results go to stdout; progress, notes and errors to stderr. `TAPSCOPE_DEBUG=1` shows the traceback "
        "of a failure.",
        "",
        "| exit status | meaning |",
        "| --- | --- |",
    ]
    out += [f"| {int(code)} | {meaning} |" for code, meaning in EXIT_MEANING.items()]
    out += ["", "| command | what it does |", "| --- | --- |"]
    listed = list(commands())
    for full, command, _ in listed:
        out.append(f"| [`tapscope {full}`](#tapscope-{full.replace(' ', '-')}) | {short(full, command)} |")
    for full, command, context in listed:
        out += ["", f"## tapscope {full}", ""]
        if not isinstance(command, click.Group):
            out += ["```", usage(command, context), "```", ""]
        for paragraph in described(command):
            if paragraph.startswith("\b"):
                out += ["```", paragraph[1:], "```", ""]
            else:
                out += [paragraph, ""]
        rows = option_rows(command)
        if not rows:
            continue
        out += ["| option | meaning |", "| --- | --- |"]
        out += [
            f"| `{names.replace('|', chr(92) + '|')}` | {help_.replace('|', chr(92) + '|')} |"
            for names, help_ in rows
        ]
    return "\n".join(out) + "\n"


def short(full: str, command: click.Command) -> str:
    """One line about a command."""
    return SHORT_HELP.get(full) or command.get_short_help_str(limit=120)


def roff(text: str) -> str:
    """Text for troff: backslashes, and dots or quotes at the start of a line, mean nothing."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(("\\&" + line) if line.startswith((".", "'")) else line for line in escaped.split("\n"))


def man_page(full: str, command: click.Command, context: click.Context) -> str:
    """Manual page of a command ("" is tapscope itself), section 1."""
    name = f"tapscope {full}".strip().replace(" ", "-")
    title = (
        short(full, command)
        if full
        else "traces, queue lengths and bottlenecks of a web system from a mirror port"
    )
    out = [
        f'.TH "{roff(name.upper())}" 1 "" tapscope "tapscope manual"',
        ".SH NAME",
        f"{roff(name)} \\- {roff(title)}",
        ".SH SYNOPSIS",
        roff(usage(command, context)),
        ".SH DESCRIPTION",
    ]
    for paragraph in described(command):
        if paragraph.startswith("\b"):
            out += [".PP", ".nf", roff(paragraph[1:]), ".fi"]
        else:
            out += [".PP", roff(paragraph)]
    out.append(".SH OPTIONS")
    out += [".TP", f".B {roff('-h, --help')}", "Show a short help and exit."]
    for names, help_ in option_rows(command):
        out += [".TP", f".B {roff(names)}", roff(help_)]
    if not full:
        out.append(".SH COMMANDS")
        for member, described_, _ in commands():
            if " " not in member:
                out += [".TP", f".BR {roff('tapscope-' + member)} (1)", roff(short(member, described_))]
    out.append(".SH EXIT STATUS")
    for code, meaning in EXIT_MEANING.items():
        out += [".TP", f".B {int(code)}", roff(meaning)]
    out += [".SH SEE ALSO", ".BR tapscope (1)" if full else "docs/commands.md, docs/formats.md"]
    return "\n".join(out) + "\n"


def man_pages() -> dict[str, str]:
    """File name -> text of every manual page."""
    root = click.Context(cli, info_name="tapscope")
    pages = {"tapscope.1": man_page("", cli, root)}
    for full, command, context in commands():
        pages[f"tapscope-{full.replace(' ', '-')}.1"] = man_page(full, command, context)
    return pages


def write(docs: Path) -> list[Path]:
    """Write commands.md, formats.md and man/ into the docs folder; returns what was written."""
    from tapscope.cli.formats import formats_md

    texts = {"commands.md": commands_md(), "formats.md": formats_md()}
    texts |= {f"man/{name}": text for name, text in man_pages().items()}
    (docs / "man").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (docs / name).write_text(text, encoding="utf-8")
    return [docs / name for name in texts]


if __name__ == "__main__":
    for path in write(Path(sys.argv[1])):
        print(path)
