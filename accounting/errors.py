r"""The error raised if no theorem in this package applies."""

from __future__ import annotations

from dpcore.errors import DpcoreError


class NotDerived(DpcoreError):
    r"""No theorem in dpcore gives the requested number; the message suggests an alternative.

    >>> raise NotDerived("a curve of 40 coordinates", "use zcdp() or pure()")
    Traceback (most recent call last):
    ...
    accounting.errors.NotDerived: cannot derive a curve of 40 coordinates: use zcdp() or pure()
    """

    def __init__(self, wanted: str, instead: str) -> None:
        super().__init__(wanted, instead)
        self.wanted = wanted
        self.instead = instead

    def __str__(self) -> str:
        return f"cannot derive {self.wanted}: {self.instead}"
