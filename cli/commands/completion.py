"""`tapscope completion`."""

from __future__ import annotations

import click


@click.command(short_help="Completion script for bash, zsh or fish.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes the shell complete tapscope's commands and options.

    \b
    bash:  tapscope completion bash > ~/.local/share/bash-completion/completions/tapscope
    zsh:   tapscope completion zsh > "${fpath[1]}/_tapscope"
    fish:  tapscope completion fish > ~/.config/fish/completions/tapscope.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, "tapscope", "_TAPSCOPE_COMPLETE").source())
