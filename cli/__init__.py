"""The `tapscope` command: arguments only; every sub-command calls one library function."""
