r"""CUCB and its private versions (Chen, Zheng, Zhou, Yang, Chen and Wang, 2020), as a policy.

``cucb`` is not private (Chen, Wang and Yuan 2013). ``cucb-ldp1`` is Algorithm 1: users send all
outcomes, each with noise; ``cucb-ldp2`` Algorithm 2: only that of the least pulled base arm of the
super arm. ``cucb-dp`` is Algorithm 3, running sums at a trusted server; ``cucb-dp2`` the same, of
the least pulled base arm only (end of their section 3.2). ``bandits.rounds`` plays them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from bandits.batch import arms_and_horizon, check_word
from bandits.combinatorial.bonus import bonus_table
from bandits.combinatorial.problem import Problem
from bandits.combinatorial.streams import StreamPrivatizer, StreamRelease, StreamTrust
from bandits.privatizers.promise import RunGuarantee
from bandits.radius.radius import RadiusName
from dpcore.errors import InvalidParameter
from dpcore.numbers.floating import Floats
from dpcore.numbers.parameter import Exact, RationalLike, make_positive, rational

__all__ = ["FAMILY", "Cucb", "CucbName", "cucb"]

CucbName: TypeAlias = Literal["cucb", "cucb-ldp1", "cucb-ldp2", "cucb-dp", "cucb-dp2"]

FAMILY: Final[dict[CucbName, tuple[StreamTrust, str]]] = {
    "cucb": ("none", "upper confidence bounds of base arms, without privacy"),
    "cucb-ldp1": ("local", "as cucb, every user adds discrete Laplace noise to all outcomes"),
    "cucb-ldp2": ("local", "as cucb-ldp1, of the least pulled base arm only"),
    "cucb-dp": ("central", "as cucb, a trusted server adds noise to running sums"),
    "cucb-dp2": ("central", "as cucb-dp, of the least pulled base arm only"),
}
r"""Each algorithm, who adds its noise, and a sentence."""

_LEAST: Final = ("cucb-ldp2", "cucb-dp2")
_SMALLEST_C: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Cucb:
    r"""Play the super arm that the oracle finds at upper confidence bounds, clipped at ``clip``.

    With ``radius="exact"`` the bounds are proven for the noise, with ``"paper"`` they are the
    paper's, times ``c`` for local noise. Made by :func:`cucb`.

    Raises :class:`InvalidParameter` for a privatizer that sends another number of outcomes than
    the policy, a clip not > 0 and a c below 2: a smaller one locks out good arms.
    """

    name: CucbName
    problem: Problem
    privatizer: StreamPrivatizer
    radius: RadiusName = "exact"
    c: Exact = Exact(4)
    clip: Exact = Exact(1)

    def __post_init__(self) -> None:
        arms_and_horizon(self.problem.arms, self.privatizer.horizon)
        sent = 1 if self.least else self.problem.most
        if self.privatizer.sent != sent:
            reason = f"must hide {sent}, the outcomes that a user sends"
            raise InvalidParameter("sent", self.privatizer.sent, reason)
        check_word("radius", self.radius, RadiusName)
        make_positive(self, c="it scales the bonus", clip="estimates are bounded by it")
        if self.c < _SMALLEST_C:
            reason = "must be >= 2: smaller ones lock out good arms for ever"
            raise InvalidParameter("c", self.c, reason)

    @property
    def least(self) -> bool:
        r"""Whether of a super arm only the base arm is sent whose sum is of the fewest outcomes."""
        return self.name in _LEAST

    def bonuses(self) -> Floats:
        r"""What is added to the mean of n outcomes, for n = 0, ..., T."""
        return bonus_table(self.privatizer, self.problem.arms, self.radius, self.c)

    def promise(self) -> RunGuarantee | None:
        r"""What a run promises each user, who is in one round; None without privacy.

        >>> from bandits.combinatorial.decisions import Unions
        >>> top = Problem(decisions=Unions.subsets(20, 8))
        >>> cucb("cucb-ldp2", top, horizon=1000, epsilon="1/2").promise().pure()
        Bound(at most 0.5, 'worst')
        """
        found = self.privatizer.guarantee()
        if found is None:
            return None
        return RunGuarantee(parts=(found,), assumptions=self.privatizer.assumed())


def cucb(  # noqa: PLR0913  # one for each parameter of a run
    name: CucbName,
    problem: Problem,
    *,
    horizon: int,
    epsilon: RationalLike = 1,
    delta: RationalLike = "1e-6",
    release: StreamRelease = "tree",
    radius: RadiusName = "exact",
    c: RationalLike = 4,
) -> Cucb:
    r"""The algorithm of that name, with the noise that gives its users ``epsilon``.

    ``release`` is of cucb-dp and cucb-dp2; ``delta`` of the factorisation only.

    >>> from bandits.combinatorial.decisions import Unions
    >>> top = Problem(decisions=Unions.subsets(20, 8))
    >>> cucb("cucb-ldp1", top, horizon=1000, epsilon=2).privatizer.noise
    DiscreteLaplace(scale=4)
    >>> cucb("cucb-dp", top, horizon=1000, epsilon=2, release="doubling").privatizer.noise
    DiscreteLaplace(scale=4)

    Raises :class:`InvalidParameter` for another name, and as its parts do.
    """
    if name not in FAMILY:
        raise InvalidParameter("name", name, f"must be one of {', '.join(FAMILY)}")
    if not isinstance(problem, Problem):
        raise InvalidParameter("problem", problem, "must be a Problem")
    privatizer = StreamPrivatizer(
        trust=FAMILY[name][0],
        epsilon=rational("epsilon", epsilon),
        sent=1 if name in _LEAST else problem.most,
        horizon=horizon,
        release=release,
        delta=rational("delta", delta),
    )
    return Cucb(
        name=name,
        problem=problem,
        privatizer=privatizer,
        radius=radius,
        c=rational("c", c),
    )
