"""`python -m tapscope` is the `tapscope` command."""

from tapscope.cli.main import main

if __name__ == "__main__":
    main()
