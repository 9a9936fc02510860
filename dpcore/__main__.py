r"""``python -m dpcore``: the command."""

from dpcore.cli import main

if __name__ == "__main__":
    main()
