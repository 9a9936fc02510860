r"""The error of accounting: no theorem in this package applies."""

from __future__ import annotations

from dpcore.errors import DpcoreError


class NotDerived(DpcoreError):
    r"""No theorem in this package gives the requested number; the message suggests an alternative.

    >>> raise NotDerived("a curve of 40 coordinates", "ask for zcdp() or pure()")
    Traceback (most recent call last):
    ...
    accounting.errors.NotDerived: no theorem here gives a curve of 40 coordinates: ask for zcdp()...
    """

    def __init__(self, wanted: str, instead: str) -> None:
        super().__init__(wanted, instead)
        self.wanted = wanted
        self.instead = instead

    def __str__(self) -> str:
        return f"no theorem here gives {self.wanted}: {self.instead}"
