"""Tests of many processes on one ledger, and of processes killed in the middle of a charge."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

from accounting.ledger import Ledger, Receipt
from tests.day_and_nightly import effort
from tests.support.ledger.workers import WORKERS, charge_on, hammer, killed, processes, together

ROUNDS, AFFORDED = 15, 50


def test_concurrent_processes_overspend_nobody_and_lose_no_charge(url: str, tmp_path: Path) -> None:
    words = together(hammer, url, tmp_path, ROUNDS)
    paid = [word for word in words if word[0] == "paid"]
    refused = [word for word in words if word[0] == "refused"]
    assert len(paid) == AFFORDED
    assert len(refused) == WORKERS * ROUNDS - AFFORDED
    # All processes make the same common releases; each is new in exactly one process, and gives
    # the same value in all.
    new = [word[1:] for word in words if word[0] == "new"]
    assert len(new) == ROUNDS
    assert all(word[1:] in new for word in words if word[0] == "again")
    if not url.startswith("postgresql"):
        # Releases are not shared: neither data nor values cross to another process.
        assert b"common" not in Path(f"{url}-queue").read_bytes()
    told = [word[-2:] for word in words if word[0] != "refused"]
    receipts = [Receipt(batch="", number=int(n), digest=digest, paid=2) for n, digest in told]
    with Ledger.open(url) as ledger:
        assert ledger.check(*receipts) == ()
        assert ledger.charges() == AFFORDED + ROUNDS
        assert ledger.remaining("shared") == {"rho": 0}
        assert ledger.remaining("common") == {"rho": 1 - Fraction(ROUNDS, 80000)}
        for me in range(WORKERS):
            own = sum(word[1] == str(me) for word in paid)
            assert ledger.remaining(f"own {me}") == {"rho": 1 - Fraction(own, AFFORDED)}


def test_two_hundred_kills_leave_every_charge_complete_or_absent(tmp_path: Path) -> None:
    """Kill processes; after each the ledger is intact with every acknowledged charge.

    The moment of a kill depends on the machine, so processes are killed until some were inside a
    charge that is absent: at most ten times as many.
    """
    kills, context, generator = effort(12, 200), processes(), random.Random(20)
    url_of, path = [str(tmp_path / f"{n}.db") for n in range(6)], tmp_path / "written"
    absent = present = 0
    for number in range(10 * kills):
        if number >= kills and absent and absent + present > kills // 4:
            break
        url = url_of[min(number, kills - 1) * len(url_of) // kills]
        words = (url, str(path), f"{number}")
        process = context.Process(target=charge_on, args=words, daemon=True)
        begun, paid = killed(process, path, generator)
        if begun == "0":
            continue  # killed while creating the ledger: the next process creates it
        with Ledger.open(url) as ledger:
            assert ledger.check(*paid) == ()
            batches = {charge.batch for charge in ledger.history()}
            assert batches >= {receipt.batch for receipt in paid}
            if begun not in {receipt.batch for receipt in paid}:
                absent += begun not in batches
                present += begun in batches
    # Most processes were killed inside a charge, and some of those before the charge was stored.
    assert absent + present > kills // 4
    assert absent > 0
