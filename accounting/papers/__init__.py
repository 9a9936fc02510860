r"""Parameters and bounds as the papers state them, by name: for reproduction and comparison.

Nothing here is used to promise anything: guarantees are derived from exact laws (``curve``,
``box``). Where a paper is in error both forms are given, and the docstring says which is proven.
Integers are exact: no float decides a ceiling. Reals are enclosures; rationals are exact.
"""

from accounting.papers.arguments import BitNoise
from accounting.papers.cz import (
    SumParameters,
    cz_central,
    cz_concentrated,
    cz_local,
    cz_pure,
    cz_renyi,
    cz_renyi_bound,
    cz_shuffled,
    gaussian_sum_epsilon,
    skellam_renyi_bound,
)
from accounting.papers.lzj import (
    lzj_classical_gaussian,
    lzj_scalar,
    lzj_scalar_lemma,
    lzj_vector,
)
from accounting.papers.tkms import tkms_bits, tkms_threshold

__all__ = [
    "BitNoise",
    "SumParameters",
    "cz_central",
    "cz_concentrated",
    "cz_local",
    "cz_pure",
    "cz_renyi",
    "cz_renyi_bound",
    "cz_shuffled",
    "gaussian_sum_epsilon",
    "lzj_classical_gaussian",
    "lzj_scalar",
    "lzj_scalar_lemma",
    "lzj_vector",
    "skellam_renyi_bound",
    "tkms_bits",
    "tkms_threshold",
]
