r"""Queries on tables whose rows belong to users, and their private answers.

``count_sum_mean_quantile`` defines counts, sums, means, histograms, quantiles and top k, with their
sensitivities; ``table_with_rows_per_user`` reads tables; ``release_answer`` releases the answers of
queries, also with a ledger or in a session. Proofs: docs/proofs/selection.md.
"""

from typing import TYPE_CHECKING

from dpcore.lazy_import import lazy_names

if TYPE_CHECKING:
    from accounting.queries.count_sum_mean_quantile import (
        Count,
        Histogram,
        Mean,
        Quantile,
        Sum,
        Target,
        TopK,
    )
    from accounting.queries.release_answer import Released, Session, release
    from accounting.queries.table_with_rows_per_user import Table, TableScope

__all__ = [
    "Count",
    "Histogram",
    "Mean",
    "Quantile",
    "Released",
    "Session",
    "Sum",
    "Table",
    "TableScope",
    "Target",
    "TopK",
    "release",
]

__getattr__ = lazy_names(__name__)
