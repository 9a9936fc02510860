r"""The ledger: a million users in one call, ten thousand charges, and OpenDP's odometer beside it.

python -m benchmarks.ledger
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accounting.claim import ZCdp
from accounting.ledger import Ledger
from benchmarks.machine import write
from dpcore.mechanism import Scope, Unit

USERS = 1_000_000
CHARGES = 10_000
PEER_CHARGES = 1_000
PART = 10  # first and last tenth


def timed(work: Callable[[], object]) -> dict[str, float]:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return {
        "seconds": round(time.perf_counter() - wall, 3),
        "cpu_seconds": round(time.process_time() - processor, 3),
    }


def opened(folder: str, name: str) -> Ledger:
    budget = ZCdp(1, scope=Scope(unit=Unit.USER))
    return Ledger.create(str(Path(folder, name)), budget=budget)


def million(folder: str) -> dict[str, Any]:
    users = [f"user {number:07d}" for number in range(USERS)]
    price = ZCdp("2/5")
    with opened(folder, "million.db") as ledger:
        found: dict[str, Any] = {
            "users": USERS,
            "first_charge": timed(lambda: ledger.charge(users, price, batch="one")),
            "second_charge": timed(lambda: ledger.charge(users, price, batch="two")),
            "the_same_again": timed(lambda: ledger.charge(users, price, batch="two")),
            "all_left_out": timed(
                lambda: ledger.charge(users, price, batch="three", skip_exhausted=True)
            ),
            "check": timed(ledger.check),
        }
        assert ledger.check() == ()
    found["bytes_per_user_and_charge"] = round(
        Path(folder, "million.db").stat().st_size / USERS / 3, 1
    )
    return found


def in_a_row(charge: Callable[[int], object], count: int) -> dict[str, Any]:
    """``count`` charges, and the processor's time for one of the first and of the last tenth."""
    start, times = time.perf_counter(), [time.process_time()]
    for number in range(count):
        charge(number)
        times.append(time.process_time())
    seconds, tenth = time.perf_counter() - start, count // PART
    first = (times[tenth] - times[0]) / tenth
    last = (times[-1] - times[-1 - tenth]) / tenth
    return {
        "charges": count,
        "seconds": round(seconds, 3),
        "cpu_seconds": round(times[-1] - times[0], 3),
        "first_cpu_ms": round(1e3 * first, 4),
        "last_cpu_ms": round(1e3 * last, 4),
        "last_over_first": round(last / first, 2),
    }


def ten_thousand(folder: str) -> dict[str, Any]:
    price = ZCdp(f"1/{CHARGES}")
    with opened(folder, "thousands.db") as ledger:
        found = in_a_row(lambda n: ledger.charge(["ada"], price, batch=f"{n}"), CHARGES)
        found["spent"] = timed(lambda: ledger.spent("ada"))
        found["history"] = timed(lambda: ledger.history("ada"))
        found["check"] = timed(ledger.check)
        assert ledger.check() == ()
    return found


def peer() -> dict[str, Any] | None:
    """OpenDP's filter over a fully adaptive composition of Gaussian mechanisms, in memory."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return None
    dp.enable_features("contrib")
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    odometer = dp.c.make_fully_adaptive_composition(*space, dp.zero_concentrated_divergence())
    kept = dp.c.make_privacy_filter(odometer, d_in=1.0, d_out=1.0)
    release = dp.m.make_gaussian(*space, scale=1000.0)
    query = kept(0.0)
    return in_a_row(lambda _: query(release), PEER_CHARGES)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        ours = {"million_users": million(folder), "one_user": ten_thousand(folder)}
    write("ledger", {"database": "SQLite", **ours, "opendp_filter": peer()})


if __name__ == "__main__":
    main()
