r"""Write a small package as a wheel that pip installs without a network."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

__all__ = ["write_wheel"]


def write_wheel(folder: Path, name: str, version: str, source: str, needs: str = "") -> Path:
    """Write ``name-version`` with one module of that name; ``needs`` is a declared requirement."""
    about = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    if needs:
        metadata += f"Requires-Dist: {needs}\n"
    files = {
        f"{name}.py": source,
        f"{about}/METADATA": metadata,
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in files.items())
    files[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


def _digest(text: str) -> str:
    raw = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
