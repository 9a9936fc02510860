r"""Speed of the ledger: a million users, ten thousand charges, eight writers, OpenDP's filter.

python -m benchmarks.ledger
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from accounting.guarantees.stated_guarantees import ZCdp
from accounting.ledger import Ledger, Receipt, Request
from benchmarks.machine import write
from dpcore.mechanism import Scope, Unit

USER = Scope(unit=Unit.USER)
USERS = 1_000_000
CHARGES = 10_000
PEER_CHARGES = 1_000
WRITERS = 8
EACH = 40  # calls of each writer
PART = 10  # first and last tenth


def timed(work: Callable[[], object]) -> dict[str, float]:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return {
        "seconds": round(time.perf_counter() - wall, 3),
        "cpu_seconds": round(time.process_time() - processor, 3),
    }


def opened(folder: str, name: str) -> Ledger:
    budget = ZCdp(1, scope=USER)
    return Ledger.create(str(Path(folder, name)), budget=budget)


def million(folder: str) -> dict[str, Any]:
    users = [f"user {number:07d}" for number in range(USERS)]
    price = ZCdp("2/5", scope=USER)
    with opened(folder, "million.db") as ledger:
        found: dict[str, Any] = {
            "users": USERS,
            "first_charge": timed(lambda: ledger.charge(users, price, batch="one")),
            "second_charge": timed(lambda: ledger.charge(users, price, batch="two")),
            "the_same_again": timed(
                lambda: ledger.charge(users, price, batch="two", repeat_ok=True)
            ),
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
    """Make ``count`` charges and time them, with the processor time of the first and last tenth."""
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
    price = ZCdp(f"1/{CHARGES}", scope=USER)
    with opened(folder, "thousands.db") as ledger:
        found = in_a_row(lambda n: ledger.charge(["ada"], price, batch=f"{n}"), CHARGES)
        found["spent"] = timed(lambda: ledger.spent("ada"))
        found["history"] = timed(lambda: ledger.history("ada"))
        found["check"] = timed(ledger.check)
        assert ledger.check() == ()
    return found


def writer(url: str, me: int, at_once: int, barrier: Barrier, worst: Queue[float]) -> None:
    """One writer: make ``EACH`` calls with ``at_once`` charges and report the longest wait."""
    price, waits = ZCdp("1/1000000", scope=USER), [0.0]
    with Ledger.open(url) as ledger:
        barrier.wait()
        for first in range(0, EACH * at_once, at_once):
            start = time.perf_counter()
            batches = [f"{me}.{number}" for number in range(first, first + at_once)]
            found = ledger.charge_many(
                Request(users=[f"user {me}"], guarantee=price, batch=batch) for batch in batches
            )
            assert all(isinstance(each, Receipt) for each in found)
            waits.append(time.perf_counter() - start)
        barrier.wait()
    worst.put(max(waits))


def processes(folder: str, at_once: int) -> dict[str, Any]:
    """Charges per second of eight processes on one file, with ``at_once`` charges per call."""
    with opened(folder, f"processes {at_once}.db"):
        pass
    url = str(Path(folder, f"processes {at_once}.db"))
    context = get_context("forkserver")
    context.set_forkserver_preload(["accounting.ledger"])
    barrier, worst = context.Barrier(WRITERS + 1), context.Queue()
    started = [
        context.Process(target=writer, args=(url, me, at_once, barrier, worst))
        for me in range(WRITERS)
    ]
    for process in started:
        process.start()
    barrier.wait()
    start = time.perf_counter()
    barrier.wait()
    seconds = time.perf_counter() - start
    longest = max(worst.get() for _ in started)
    for process in started:
        process.join()
    with Ledger.open(url) as ledger:
        assert ledger.check() == ()
        assert ledger.charges() == WRITERS * EACH * at_once
    return {
        "charges_in_a_call": at_once,
        "charges_a_second": round(WRITERS * EACH * at_once / seconds),
        "longest_wait_seconds": round(longest, 3),
    }


def threads(folder: str, count: int) -> dict[str, Any]:
    """Charges per second of threads that share one ledger, with one charge per call."""
    price = ZCdp("1/1000000", scope=USER)
    with opened(folder, f"threads {count}.db") as ledger, ThreadPoolExecutor(count) as pool:
        start = time.perf_counter()
        wanted = [f"{number}" for number in range(EACH * count)]
        for _ in pool.map(lambda batch: ledger.charge(["ada"], price, batch=batch), wanted):
            pass
        seconds = time.perf_counter() - start
        assert ledger.check() == ()
    return {"threads": count, "charges_a_second": round(EACH * count / seconds)}


def flush(folder: str) -> float:
    """Milliseconds of one flush of two pages to this disk, the least time of a single charge."""
    with Path(folder, "flushed").open("wb", buffering=0) as file:
        start = time.perf_counter()
        for _ in range(100):
            file.write(bytes(8192))
            os.fsync(file.fileno())
        return round((time.perf_counter() - start) * 10, 3)


def writers(folder: str) -> dict[str, Any]:
    return {
        "flush_ms": flush(folder),
        "eight_processes": [processes(folder, at_once) for at_once in (1, 16, 64, 256)],
        "one_process": [threads(folder, count) for count in (8, 64)],
    }


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
    # In this folder, because a temporary folder may be in memory, where a flush costs nothing.
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
        ours: dict[str, Any] = {"writers": writers(folder)}
        ours |= {"million_users": million(folder), "one_user": ten_thousand(folder)}
    write("ledger", {"database": "SQLite", **ours, "opendp_filter": peer()})


if __name__ == "__main__":
    main()
