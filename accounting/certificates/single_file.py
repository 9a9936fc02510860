r"""The kernel as a single file, for an auditor without dpcore. ``make kernel`` writes kernel.py.

``python kernel.py certificate.json`` gives the verdict of ``dpcore verify`` without estimates, so
claims that the kernel does not prove are not accepted. The file contains the unchanged sources and
needs only the standard library.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_START: Final = "accounting.certificates.verify_certificate"

_HEAD: Final = '''#!/usr/bin/env python3
"""Checks certificates of dpcore: python kernel.py certificate.json

Exit code: 0 every claim is proven; 1 a claim is refused, for the reason printed; 2 the file is not
a certificate. Only the standard library is needed. This file contains the sources of the packages
accounting.proof_kernel and accounting.certificates, module by module.
"""

import json
import sys
import types

SOURCES = {
'''

_TAIL: Final = """}


def load():
    for name, source in SOURCES.items():
        parts = name.split(".")
        for i in range(1, len(parts)):
            parent = ".".join(parts[:i])
            if parent not in sys.modules:
                sys.modules[parent] = types.ModuleType(parent)
                sys.modules[parent].__path__ = []
        module = sys.modules[name] = types.ModuleType(name)
        exec(compile(source, name, "exec"), module.__dict__)


def main(arguments):
    if len(arguments) != 1:
        print("usage: python kernel.py certificate.json", file=sys.stderr)
        return 2
    load()
    try:
        with open(arguments[0], "rb") as file:
            text = file.read(1 << 22)
        document = json.loads(text)
        schema = document["schema"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        print(f"not a certificate: {type(error).__name__}: {str(error)[:80]}", file=sys.stderr)
        return 2
    if schema != sys.modules["accounting.certificates.canonical_text"].SCHEMA:
        print(f"not a certificate that this file reads: {schema!r}", file=sys.stderr)
        return 2
    with sys.modules["accounting.certificates.deadline"].deadline(3600):
        found = sys.modules["accounting.certificates.verify_certificate"].verify(text,
        estimates=False)
    print(found)
    print("every claim is proven" if found.holds else "REFUSED")
    return 0 if found.holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


def single_file() -> str:
    r"""The text of kernel.py: all modules that verification imports, except the estimates."""
    found: dict[str, str] = {}

    def add(name: str) -> None:
        path = _ROOT / f"{name.replace('.', '/')}.py"
        if name in found or not path.exists():
            return
        source = path.read_text(encoding="utf-8")
        for node in ast.parse(source).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                add(node.module)
        found[name] = source

    add(_START)
    listed = "".join(f"    {name!r}: r'''{source}''',\n" for name, source in found.items())
    return f"{_HEAD}{listed}{_TAIL}"


if __name__ == "__main__":
    sys.stdout.write(single_file())
