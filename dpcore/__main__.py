r"""``python -m dpcore``: the command."""

from dpcore.command.app import main

if __name__ == "__main__":
    main()
