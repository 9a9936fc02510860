"""Processes that use one ledger at the same time, and are killed."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

from accounting.ledger import BudgetExhausted, Ledger, Receipt
from dpcore import DiscreteGaussian, Mechanism
from tests.support.ledger.budget import BUDGET, PER_USER, per_user

PRICE = per_user("1/50")
"""Fifty of them are the budget."""

WORKERS = 4

NOISY = Mechanism(noise=DiscreteGaussian(sigma_squared=40000), sensitivity=1, scope=PER_USER)
"""An eighty-thousandth of the budget."""


def processes() -> ForkServerContext:
    """Return a context whose processes have the imports loaded and share nothing with this one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["accounting.ledger", "tests.support.ledger.workers"])
    return context


def write(path: str, line: str) -> None:
    """Append a line that is in the file when this returns, even if the process is killed."""
    target = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(target, f"{line}\n".encode())
    os.close(target)


def hammer(url: str, barrier: Barrier, path: str, rounds: int, me: int) -> None:
    """Charge a shared user and a user of this process, then release the same batches as all others.

    Acknowledged charges are recorded.
    """
    barrier.wait(60)
    with Ledger.create(url, budget=BUDGET) as ledger:
        for number in range(rounds):
            try:
                receipt = ledger.charge(["shared", f"own {me}"], PRICE, batch=f"{me}:{number}")
            except BudgetExhausted:
                write(path, f"refused {me}")
            else:
                write(path, f"paid {me} {receipt.number} {receipt.digest}")
        for number in range(rounds):
            barrier.wait(60)
            found = ledger.release(NOISY, 10**6, users=["common"], batch=f"common:{number}")
            told = "again" if found.repeated else "new"
            write(path, f"{told} {number} {found.value} {found.number} {found.digest}")


def together(work: Callable[..., None], url: str, folder: Path, rounds: int) -> list[list[str]]:
    """Return the lines that ``WORKERS`` processes wrote, each split into words."""
    context = processes()
    barrier, path = context.Barrier(WORKERS), str(folder / "written")
    started = [
        context.Process(target=work, args=(url, barrier, path, rounds, me), daemon=True)
        for me in range(WORKERS)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    assert [process.exitcode for process in started] == [0] * WORKERS
    return [line.split() for line in Path(path).read_text(encoding="utf-8").splitlines()]


def hold(url: str, held: Event, enough: Event) -> None:
    """Keep the lock of a ledger until ``enough`` is set."""
    with Ledger.open(url) as ledger, ledger._store.writing() as connection:
        ledger._book.head(connection, lock=True)
        held.set()
        enough.wait(60)


def charge_on(url: str, path: str, name: str) -> None:
    """Charge until the process is killed; each step is recorded."""
    users = [f"user {n}" for n in range(400)]
    write(path, "begun 0")
    with Ledger.create(url, budget=BUDGET) as ledger:
        number = 0
        while True:
            write(path, f"begun {name}:{number}")
            receipt = ledger.charge(users, per_user("1/100000"), batch=f"{name}:{number}")
            write(path, f"paid {receipt.batch} {receipt.number} {receipt.digest}")
            number += 1


def killed(
    process: ForkServerProcess, path: Path, generator: random.Random
) -> tuple[str, list[Receipt]]:
    """Start a process, wait for some lines, kill -9 after a pause: return last begun and paid."""
    process.start()
    # One in five is killed while it creates or opens the ledger, the others after so many lines.
    enough = generator.choice([1, 2, 4, 6, 8])
    while not path.exists() or path.read_bytes().count(b"\n") < enough:
        time.sleep(0.0005)
    time.sleep(generator.expovariate(1 / 0.01))
    process.kill()
    process.join(30)
    begun, paid = told(path)
    path.unlink()
    return begun[-1], paid


def told(path: Path) -> tuple[list[str], list[Receipt]]:
    """Return the batches that a process in ``charge_on`` began, and the receipts it was given."""
    words = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    paid = [
        Receipt(batch=word[1], number=int(word[2]), digest=word[3], paid=400)
        for word in words
        if word[0] == "paid"
    ]
    return [word[1] for word in words if word[0] == "begun"], paid


def release_on(url: str, path: str, repeats: int) -> None:
    """Release batch after batch and publish each value, starting a few batches back."""
    with Ledger.open(url) as ledger:
        number = max(0, ledger.charges() - repeats)
        while True:
            found = ledger.release(NOISY, 1000, users=["ada", "bob"], batch=f"{number}")
            write(path, f"{number} {found.value}")
            number += 1
