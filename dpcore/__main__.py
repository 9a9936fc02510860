r"""Run the command ``dpcore``, also as ``python -m dpcore``."""

import sys


def main() -> None:
    r"""Import and run the command; Ctrl-C gives the exit code 130 even during the import."""
    try:
        from dpcore.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)  # dpcore.errors.INTERRUPTED, whose import could be interrupted again


if __name__ == "__main__":
    main()
