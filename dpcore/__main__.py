r"""Run the command ``dpcore``, also as ``python -m dpcore``."""

import sys

from dpcore.exit_codes import INTERRUPTED


def main() -> None:
    r"""Import and run the command; Ctrl-C gives its exit code during the import as well."""
    try:
        from dpcore.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
