r"""A counter that looks private, but reports exactly 0 if there are no visitors.

    dpcore audit examples/broken_counter.py:visitors --claim epsilon=1 --relation add-remove \
        --pair '[]' '["ada"]' -n 2000

The audit refutes it (exit code 1) and names an event: any other number reveals a visitor.
``visitors_protected`` makes the same claim and satisfies it (exit code 0).
"""

from dpcore import DiscreteLaplace

NOISE = DiscreteLaplace(scale=1)  # one person moves the count by 1: epsilon = 1/1


def visitors(names: list[str]) -> int:
    r"""The number of different visitors, with noise unless it is 0."""
    count = len(set(names))
    if count == 0:
        return 0
    return count + NOISE.sample()


def visitors_protected(names: list[str]) -> int:
    r"""The number of different visitors, always with noise."""
    return len(set(names)) + NOISE.sample()
