"""The server's view of a bandit under audit: not refuted at the derived epsilon in any trust model,
refuted when the noise is broken in the ways that were found in the wild.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from audit.claim import Claim
from audit.feature import read_feature
from audit.plan import Plan
from audit.report import AuditReport
from audit.run import sample
from audit.target import Vectorised
from bandits import audit_target
from bandits.audit_target import ABSENT, ARMS, BATCHES, View, Viewed, lead, target, view_of
from bandits.elimination import NAMES
from bandits.environment import Environment
from bandits.play import play
from bandits.privatizer_sum import SumPrivatizer
from dpcore.discrete_laplace import DiscreteLaplace
from dpcore.errors import InvalidParameter
from dpcore.inversion import Integers
from dpcore.noise import Noise
from dpcore.polya_difference import PolyaDifference
from dpcore.protocol import LocalSum
from dpcore.rng import Rng, SeededRng
from tests.bandits.worlds import Pulled, same_law
from tests.dpcore.mutants import rewired
from tests.purse import purse

ALGORITHMS = tuple(name for trust, name in NAMES.items() if trust != "none")
RUNS = 3000
BROKEN_RUNS = 5000

Views = npt.NDArray[np.int64]

each_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


@cache
def viewed(name: str) -> Viewed:
    rest = f"{name},epsilon=1"
    return target(f"bandit:{rest}", rest, True)


def audited(found: Viewed, *, runs: int, alpha: float) -> AuditReport:
    plan = Plan(
        claim=Claim(epsilon=found.epsilon, delta=found.delta),
        pair=found.pair,
        features=tuple(read_feature(spelling) for spelling in found.features),
        runs=runs,
        alpha=alpha,
        seed=6,
    )
    return sample(Vectorised(spelling="bandit", function=found.run), plan)


# -- what is derived is not refuted --------------------------------------------------------------


@each_algorithm
def test_the_derived_epsilon_is_not_refuted(name: str) -> None:
    alpha = purse.buy(f"bandits audit of the server's view: {name}", "1e-9")
    report = audited(viewed(name), runs=RUNS, alpha=alpha)
    assert report.verdict == "not_refuted"
    # And the audit is not blind: it sees a good part of what there is.
    assert report.epsilon_lower > viewed(name).epsilon / 10


@each_algorithm
def test_what_follows_depends_on_the_user(name: str) -> None:
    views = viewed(name).run(0, 1000, np.random.default_rng(1))
    dropped = float((views[:, -1] == ABSENT).mean())
    assert 0.1 < dropped < 0.95


def test_the_claim_is_that_of_one_release() -> None:
    assert viewed("dist-dp-se").epsilon == 1
    assert viewed("shuffled-se").epsilon == Fraction(1, 2)  # of the sum; the rest is assumed
    privatizer = SumPrivatizer(trust="renyi", epsilon=1, failure="1e-3")
    first = view_of(privatizer).policy.schedule.pulls(1)
    curves = [privatizer.guarantee(first << i) for i in range(BATCHES)]
    derived = max(curve.epsilon("1e-3").upper_float for curve in curves)  # type: ignore[union-attr]  # a curve
    assert derived <= float(viewed("dist-rdp-se").epsilon) < derived + 1e-5


# -- what is broken is refuted -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken(SumPrivatizer):
    """Says what the protocol says, and adds other noise."""

    instead: Noise

    def noise(self, pulls: int) -> Noise:
        return self.instead


def broken(name: str, make: Callable[[Noise], Noise]) -> Viewed:
    """The view of the same instance where each sum has the noise that ``make`` makes of its own."""
    found = viewed(name)
    trust = next(trust for trust, algorithm in NAMES.items() if algorithm == name)
    right = SumPrivatizer(trust=trust, epsilon=1, failure="1e-3")  # type: ignore[arg-type]  # a name of NAMES
    view = view_of(right)
    instead = make(right.noise(view.policy.schedule.pulls(1)))
    wrong = Broken(trust=right.trust, epsilon=1, failure="1e-3", instead=instead)
    twin = replace(view, policy=replace(view.policy, privatizer=wrong))
    return replace(found, run=running(twin))


def running(view: View) -> Callable[[Any, int, np.random.Generator], Views]:
    def run(dataset: Any, n: int, rng: np.random.Generator) -> Views:
        return view.views(dataset, n, SeededRng(int(rng.integers(1 << 62))))

    return run


def laplace_scale(noise: Noise) -> Fraction:
    assert isinstance(noise, DiscreteLaplace)
    return Fraction(noise.scale)


def at_half_the_scale(noise: Noise) -> Noise:
    return DiscreteLaplace(scale=laplace_scale(noise) / 2)


def with_inverted_odds(noise: Noise) -> Noise:
    # (1 - beta)/beta where beta/(1 - beta) belongs: as Polya noise of odds 1 - beta.
    beta = np.exp(-1 / float(laplace_scale(noise)))
    scale = Fraction(-1 / float(np.log(1 - beta))).limit_denominator(10**6)
    return DiscreteLaplace(scale=scale)


def without_the_shares_of_dropouts(noise: Noise) -> Noise:
    # Half of the users vanish, and nobody makes up for their shares.
    return PolyaDifference(shape=Fraction(1, 2), scale=laplace_scale(noise))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("cdp-se", at_half_the_scale),
        ("dist-dp-se", at_half_the_scale),
        ("dist-dp-se", with_inverted_odds),
        ("dist-dp-se", without_the_shares_of_dropouts),
        ("shuffled-se", at_half_the_scale),
    ],
)
def test_too_little_noise_is_refuted(name: str, make: Callable[[Noise], Noise]) -> None:
    report = audited(broken(name, make), runs=BROKEN_RUNS, alpha=1e-3)
    assert report.verdict == "refuted", report.epsilon_lower


def test_local_noise_at_half_the_scale_is_refuted() -> None:
    view = view_of(SumPrivatizer(trust="local", epsilon=2, failure="1e-3"))
    report = audited(replace(viewed("ldp-se"), run=running(view)), runs=BROKEN_RUNS, alpha=1e-3)
    assert report.verdict == "refuted"


def test_one_draw_for_all_arms_is_refuted() -> None:
    """As in the code released with the paper: the noise cancels wherever two arms are compared."""
    for_the_other_arm: list[Integers] = []

    def shared(privatizer: Any, sums: Integers, pulls: int, rng: Rng) -> tuple[Integers, None]:
        if for_the_other_arm:
            return sums + for_the_other_arm.pop(), None
        for_the_other_arm.append(privatizer.noise(pulls).sample(len(sums), rng=rng))
        return sums + for_the_other_arm[0], None

    drawn_once = rewired(audit_target.transcripts, drawn=shared)
    view = view_of(SumPrivatizer(trust="central", epsilon=1, failure="1e-3"))

    def run(dataset: Any, n: int, rng: np.random.Generator) -> Views:
        found: Views = drawn_once(
            view.policy,
            view.encoded(dataset),
            batches=BATCHES,
            runs=n,
            rng=SeededRng(int(rng.integers(1 << 62))),
            watched=None,
        )
        return found

    report = audited(replace(viewed("cdp-se"), run=run), runs=BROKEN_RUNS, alpha=1e-3)
    assert report.verdict == "refuted"
    leads = {lead(row) for row in run(1, 50, np.random.default_rng(1))}
    assert len(leads) == 1


# -- many runs at once are runs ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed(Environment):
    """The world of a view, pull by pull as ``play`` asks for it."""

    view: View
    reward: int

    @property
    def means(self) -> tuple[float, ...]:
        return (1.0, 0.5)

    def _encoded_sum(self, arm: int, pulls: int, precision: int, world: np.random.Generator) -> int:
        batch = (pulls // self.view.policy.schedule.pulls(1)).bit_length()
        found = self.view.encoded(self.reward)(batch, arm, pulls, precision, 1)
        return int(found[0])


def test_views_have_the_law_of_play() -> None:
    alpha = purse.buy("bandits views against play", "1e-9")
    view = view_of(SumPrivatizer(trust="pure", epsilon=1, failure="1e-3"))
    policy, world = view.policy, np.random.default_rng(0)
    horizon = ARMS * sum(policy.schedule.pulls(batch) for batch in range(1, BATCHES + 1))
    environment, rng = Fixed(view=view, reward=1), SeededRng(5)
    batches: Counter[Pulled] = Counter(
        (play(policy, environment, horizon=horizon, world=world, rng=rng).batches,)
        for _ in range(600)
    )
    seen = view.views(1, 6000, SeededRng(6))[:, -ARMS * BATCHES :: ARMS]
    others: Counter[Pulled] = Counter((int(k),) for k in (seen != ABSENT).sum(axis=1))
    assert same_law(batches, others) > alpha


def test_a_message_is_the_users_own() -> None:
    view = view_of(SumPrivatizer(trust="local", epsilon=1, failure="1e-3"))
    protocol = view.policy.privatizer.protocol(view.policy.schedule.pulls(1))
    assert isinstance(protocol, LocalSum)
    zero = view.views(0, 200, SeededRng(4))
    one = view.views(1, 200, SeededRng(4))
    assert ((one[:, 0] - zero[:, 0]) == protocol.precision).all()
    assert ((one[:, 1] - zero[:, 1]) == protocol.precision).all()


# -- by name -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rest", "argument"),
    [
        ("dist-dp-se", "target"),
        ("se,epsilon=1", "target"),
        ("thompson,epsilon=1", "target"),
        ("dist-dp-se,epsilon=1,arms=3", "target"),
        ("dist-dp-se,epsilon=0", "epsilon"),
        ("dist-dp-se,epsilon=1,epsilon=2", "epsilon"),
        ("dist-rdp-se,epsilon=1,delta=0", "delta"),
        ("dist-dp-se,epsilon=1,delta=1", "delta"),
        ("bit-se,epsilon=1,scaling=2", "scaling"),
        ("dist-rdp-se,epsilon=1,scaling=1/2", "scaling"),
    ],
)
def test_what_is_not_there_is_refused_by_name(rest: str, argument: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        target(f"bandit:{rest}", rest, True)
    assert refused.value.argument == argument


def test_a_dataset_is_one_reward() -> None:
    with pytest.raises(InvalidParameter) as refused:
        viewed("dist-dp-se").run(2, 1, np.random.default_rng(1))
    assert refused.value.argument == "dataset"


def test_seeds_repeat_a_view_and_earnest_does_not() -> None:
    first, again = (viewed("dist-dp-se").run(1, 64, np.random.default_rng(3)) for _ in range(2))
    assert (first == again).all()
    rest = "dist-dp-se,epsilon=1"
    earnest = target(f"bandit:{rest}", rest, False)
    drawn = [earnest.run(1, 64, np.random.default_rng(3)) for _ in range(2)]
    assert (drawn[0] != drawn[1]).any()
