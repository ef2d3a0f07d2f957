"""The `tapscope` command: arguments, tables and messages; the work is done by the stages below."""
