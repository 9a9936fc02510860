r"""Run the command ``dpcore`` as ``python -m dpcore``."""

from dpcore.command.app import main

if __name__ == "__main__":
    main()
