r"""Interoperation with dp-accounting: events to and from guarantees, and exported PLDs."""

from typing import TYPE_CHECKING

from dpcore.lazy_import import lazy_names

if TYPE_CHECKING:
    from accounting.interop.from_dp_accounting import event_from_json, event_to_json, from_dp_event
    from accounting.interop.to_dp_accounting import accountant, to_dp_event, to_pld

__all__ = [
    "accountant",
    "event_from_json",
    "event_to_json",
    "from_dp_event",
    "to_dp_event",
    "to_pld",
]

__getattr__ = lazy_names(__name__)
