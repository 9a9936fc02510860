r"""Returning users: regret at the same guarantee, by number of visits and composition theorem."""

from __future__ import annotations

import sys
from typing import Final, TypeAlias

from bandits.regret_plots import Curve, Panel
from benchmarks.figures.returning_table import ALGORITHMS, ReturningRow, returning_table
from benchmarks.figures.section import Cell, Check, Picture, Section, Verdict, measured, rounded
from benchmarks.figures.shared_experiments import Player, power
from dpcore.numbers.rounding import up

__all__ = ["returning_users"]

_Rows: TypeAlias = dict[tuple[str, int, str], ReturningRow]

_EPSILON: Final = 1
_DELTA: Final = "1e-6"
_ROUTES: Final = ("exact", "renyi", "advanced")


def returning_users(player: Player) -> Section:
    r"""The study of at most B visits per user, by the exact, Renyi and advanced routes."""
    horizon, visits = player.effort.returning, player.effort.visits
    sys.stderr.write(f"returning users, B in {visits}\n")
    table = returning_table(
        horizon=horizon,
        instances=player.effort.instances,
        max_visits=visits,
        epsilon=_EPSILON,
        delta=_DELTA,
        seed=player.seed,
    )
    by: _Rows = {(row.algorithm, row.max_visits, row.route): row for row in table}
    return Section(
        name="returning",
        title="Returning users",
        note=(
            f"The means are those of `cz/easy`, T = {power(horizon)}. Each user may be in B "
            f"releases, is charged before each, and has (epsilon, delta) = ({_EPSILON}, {_DELTA}) "
            "for all of them together. The route is the composition theorem, which determines "
            "the noise: *sigma* is the standard deviation of the noise of a sum, in units of "
            "reward. *exact epsilon* is the epsilon of the same noise by exact composition. "
            "There are T/B users, just enough for T rewards; no release contains more than half "
            "of them, so longer batches are released in parts. *most visits* is the largest "
            "number of visits charged to any user in any run, and *refused* the mean number of "
            "users per run who came with no visit left. If too few users are left for a release, "
            "the arms of that batch share the remaining rounds and nothing more is released; "
            "*ran out of users* counts these runs. If one arm remains early, no more users come, "
            "and few are refused."
        ),
        rows=tuple(_cells(row) for row in table),
        checks=tuple(_order(by, visits)),
        pictures=(
            Picture(
                name="returning",
                title=f"Regret when users return, ({_EPSILON}, {_DELTA}) for all visits",
                panels=tuple(_panel(name, by, visits) for name in ALGORITHMS),
            ),
        ),
    )


def _cells(row: ReturningRow) -> dict[str, Cell]:
    return {
        "algorithm": row.algorithm,
        "B": row.max_visits,
        "route": row.route,
        "sigma": rounded(row.deviation),
        "regret": measured(row.regret_per_round, row.standard_error),
        "epsilon by the route": up(row.epsilon),
        "exact epsilon": up(row.epsilon_exact),
        "users": row.users,
        "most visits": row.most_visits,
        "refused": rounded(row.turned_away),
        "ran out of users": row.dry,
        "bits": row.bits_per_user,
    }


def _order(by: _Rows, visits: tuple[int, ...]) -> list[Check]:
    checks = []
    for name in ALGORITHMS:
        for most in visits:
            noise = [by[name, most, route].deviation for route in _ROUTES]
            verdict: Verdict = "holds" if noise[0] <= min(noise) else "does not hold"
            checks.append(
                Check(
                    statement=f"{name}: exact needs the least noise (exact, renyi, advanced)",
                    where=f"B = {most}",
                    verdict=verdict,
                    figures=", ".join(f"{sigma:.3g}" for sigma in noise),
                )
            )
    return checks


def _panel(name: str, by: _Rows, visits: tuple[int, ...]) -> Panel:
    curves = []
    for route in _ROUTES:
        rows = [by[name, most, route] for most in visits]
        curves.append(
            Curve(
                label=f"{route} route",
                x=visits,
                y=[row.regret_per_round for row in rows],
                error=[row.standard_error for row in rows],
            )
        )
    return Panel(
        title=name,
        curves=curves,
        x_label="visits B that a user may make",
        y_label="Reg(T)/T",
        y_scale="linear",
        ticks=visits,
    )
