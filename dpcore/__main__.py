r"""Run the command ``dpcore``, also as ``python -m dpcore``."""

import sys


def main() -> None:
    r"""Run the command. Ctrl-C exits with code 130, also while the command is being imported."""
    try:
        from dpcore.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)  # dpcore.errors.INTERRUPTED, whose import could be interrupted again


if __name__ == "__main__":
    main()
