r"""Examples of every law: a new law joins the contract suite by a row here."""

from __future__ import annotations

# One row for each law: a tiny, a fractional, an everyday and a large parameter.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "discrete-laplace": ("scale=1/10", "scale=1/3", "scale=10", "scale=1000000", "scale=2e12"),
    "discrete-gaussian": (
        *("sigma_squared=1/50", "sigma_squared=1/4", "sigma_squared=400"),
        *("sigma_squared=1000003", "sigma_squared=16777216.5", "sigma_squared=1e24"),
    ),
}
SPELLED = [f"{law}:{parameters}" for law, rows in EXAMPLES.items() for parameters in rows]
BEYOND_INT64 = ["discrete-laplace:scale=1e30", "discrete-gaussian:sigma_squared=1e60"]
