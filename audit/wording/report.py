r"""What every report of an audit can be made into: sentences, and one JSON document."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from audit.wording.as_json import json_text
from audit.wording.lines import Told

__all__ = ["Report"]


class Report(ABC):
    r"""A report: ``print`` shows its sentences, :meth:`to_text` is its JSON document."""

    __slots__ = ()

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        r"""The report as plain values, the keys of its module's schema."""

    @abstractmethod
    def told(self) -> Told:
        r"""The report as sentences, which every view of it shows."""

    def to_text(self) -> str:
        r"""The JSON document, with a newline at its end."""
        return json_text(self.to_json())

    def __str__(self) -> str:
        return "\n".join(self.told().lines())
