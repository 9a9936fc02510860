r"""A counter that looks private, but reports an empty room as 0: "there is nobody to protect".

    dpcore audit examples/broken_counter.py:visitors --claim epsilon=1 --relation add-remove \
        --pair '[]' '["ada"]' -n 2000

The audit refutes it (exit 1) and names the event: any other number says that somebody was there.
``visitors_protected`` makes the same claim and satisfies it (exit 0).
"""

from dpcore import DiscreteLaplace

NOISE = DiscreteLaplace(scale=1)  # one person moves the count by 1: epsilon = 1/1


def visitors(names: list[str]) -> int:
    r"""The number of different visitors, with noise unless there were none."""
    count = len(set(names))
    if count == 0:
        return 0
    return count + NOISE.sample()


def visitors_protected(names: list[str]) -> int:
    r"""The same, with noise whatever the count."""
    return len(set(names)) + NOISE.sample()
