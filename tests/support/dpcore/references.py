r"""The coins and the reference samplers of every law, layer by layer, with their mutants."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dpcore import (
    Binomial,
    DiscreteGaussian,
    DiscreteGaussianSum,
    DiscreteLaplace,
    Poisson,
    Polya,
    Skellam,
    Staircase,
)
from dpcore.laws import poisson_and_binomial, polya
from dpcore.sampling import bernoulli
from dpcore.sampling.rng import Rng
from tests.support.dpcore import sampler_layers
from tests.support.dpcore.sampler_layers import NONE, TINY, Layer, exactly

EXPONENTS = exactly("0", "1/1000000", "1/3", "1/2", "0.7", "999/1000", "1")
COIN: dict[str, Any] = {
    "run": sampler_layers.call,
    "mass": sampler_layers.decay,
    "values": sampler_layers.both,
}
LAPLACE = [DiscreteLaplace(scale=s) for s in ("1/3", "1/2", "1", "5/3", "4")]
LAPLACE_ROUND = {"kind": "geometric", "rounds": 1, "open_mass": NONE}
GAUSSIAN_STUBS: dict[str, Any] = {
    "DiscreteLaplace": sampler_layers.ProposalProven,
    "bernoulli_exp": sampler_layers.bernoulli_exp_proven,
    "Fraction": Fraction,
}
ONE_DRAW = "sum(one.sample_reference(rng) for _ in range(self.count))"
JUMP_STUBS = {
    "bernoulli": sampler_layers.bernoulli_proven,
    "bernoulli_exp": sampler_layers.bernoulli_exp_proven,
    "_two_over_e": sampler_layers.two_over_e_proven,
}
JUMPS_STUBS = {"Poisson": sampler_layers.FewArrivals, "jump": sampler_layers.jump_proven}
LAYERS: tuple[Layer, ...] = (
    Layer(
        name="below",
        code=Rng.below,
        run=lambda code, rng, bound: code(rng, bound),
        mass=sampler_layers.even,
        values=range,
        cases=(*range(1, 34), 63, 64, 65, 1000, 1023, 1024, 1025),
        how={"kind": "bits", "rounds": 1, "forks_below": False},
        leftover=NONE,
        afresh=(1, 2, 3, 5, 6, 7, 8, 9, 33),
        broken=5,
        mutants={
            "modulo without rejection": (
                "if candidate < bound:\n            return candidate",
                "return candidate % bound",
            ),
        },
    ),
    Layer(
        name="bernoulli",
        code=bernoulli.bernoulli,
        run=sampler_layers.call,
        mass=sampler_layers.chance_of,
        values=sampler_layers.both,
        cases=exactly("0", "1", "1/2", "1/3", "6/7", "1/1000", "0.123456789"),
        leftover=NONE,
        broken=Fraction(1, 3),
        mutants={"off by one": ("< probability.numerator", "<= probability.numerator")},
    ),
    Layer(
        name="bernoulli_exp up to one",
        code=bernoulli._bernoulli_exp_unit,
        **COIN,
        cases=EXPONENTS,
        stubs={"bernoulli": sampler_layers.bernoulli_proven},
        how={"open_mass": TINY},
        broken=Fraction(1, 3),
        mutants={"x/(k+1) for x/k": ("exponent / trial", "exponent / (trial + 1)")},
    ),
    Layer(
        name="bernoulli_exp",
        code=bernoulli.bernoulli_exp,
        **COIN,
        cases=(*EXPONENTS, *exactly("1.5", "2", "3.7", "20")),
        stubs={"_bernoulli_exp_unit": sampler_layers.decay_proven},
        broken=Fraction(27, 10),
        mutants={"rest dropped": ("return _bernoulli_exp_unit(rng, exponent)", "return True")},
    ),
    Layer(
        name="geometric_exp",
        code=bernoulli.geometric_exp,
        run=sampler_layers.call,
        mass=sampler_layers.geometric,
        values=lambda _: range(40),
        cases=exactly("1", "2", "7/3", "1/2", "1/3", "3/5", "1/10"),
        stubs={"bernoulli_exp": sampler_layers.bernoulli_exp_proven},
        how={"kind": "below", "rounds": 1, "open_mass": TINY / 10},
        by_day=1,
        broken=Fraction(3, 2),
        mutants={
            "fraction never rejected": ("            break", "            pass\n        break")
        },
    ),
    Layer(
        name="geometric_exp through its rejections",
        code=bernoulli.geometric_exp,
        run=sampler_layers.call,
        mass=sampler_layers.geometric,
        values=lambda _: range(40),
        cases=exactly("2", "1/2", "7/3"),
        stubs={"bernoulli_exp": sampler_layers.bernoulli_exp_proven},
        how={"open_mass": Fraction(1, 1000)},
        leftover=Fraction(1, 999),
    ),
    Layer(
        name="discrete Laplace",
        code=DiscreteLaplace.sample_reference,
        cases=(*LAPLACE,),
        stubs={"geometric_exp": sampler_layers.geometric_exp_proven},
        how=LAPLACE_ROUND,
        afresh=(*LAPLACE,),
        broken=DiscreteLaplace(scale="3/2"),
        mutants={
            "zero rejected under both signs": ("negative and magnitude == 0", "magnitude == 0"),
            "a scale slightly too large": (
                "1 / self.scale",
                "1 / (self.scale + Fraction(1, 10**9))",
            ),
        },
    ),
    Layer(
        name="discrete Laplace with no layer stubbed",
        code=DiscreteLaplace.sample_reference,
        cases=tuple(DiscreteLaplace(scale=s) for s in ("1/2", 1, "3/2")),
        how={"runs": 4000},
        leftover=Fraction(1, 2),
        by_day=1,
    ),
    Layer(
        name="discrete Gaussian",
        code=DiscreteGaussian.sample_reference,
        cases=tuple(
            DiscreteGaussian(sigma_squared=v)
            for v in ("1/100", "1/4", "1/2", "1", "9/4", "10", "37/3")
        ),
        stubs=GAUSSIAN_STUBS,
        how={"kind": "DiscreteLaplace", "rounds": 1, "open_mass": NONE},
        afresh=tuple(DiscreteGaussian(sigma_squared=v) for v in ("1/4", 1, 5)),
        short={"DiscreteLaplace": sampler_layers.ShortProposal},
        broken=DiscreteGaussian(sigma_squared="28/3"),
        mutants={"float exponent": ("gap * gap /", "Fraction(float(gap) ** 2) /")},
    ),
    Layer(
        name="sum of discrete Gaussians",
        code=DiscreteGaussianSum.sample_reference,
        cases=tuple(
            DiscreteGaussianSum(count=n, sigma_squared=v)
            for n, v in ((1, "1"), (2, "1/4"), (3, "1/4"), (2, "1"))
        ),
        stubs={"DiscreteGaussian": sampler_layers.GaussianProven},
        leftover=Fraction(1, 10**20),
        broken=DiscreteGaussianSum(count=2, sigma_squared="1/4"),
        mutants={"one draw, multiplied": (ONE_DRAW, "self.count * one.sample_reference(rng)")},
    ),
    Layer(
        name="staircase",
        code=Staircase.sample_reference,
        cases=tuple(
            Staircase(epsilon=e, sensitivity=d, plateau=r)
            for e, d, r in ((3, 1, 1), ("1/2", 3, 1), (2, 3, 2), (2, 4, 4), (1, 5, 3))
        ),
        stubs={
            "invert": sampler_layers.side_proven,
            "geometric_exp": sampler_layers.geometric_exp_proven,
        },
        leftover=Fraction(1, 10**20),
        broken=Staircase(epsilon=2, sensitivity=3, plateau=2),
        mutants={
            "a plateau one too wide": ("2 * self.plateau - 1", "2 * self.plateau"),
            "a place of the plateau": ("rng.below(self.sensitivity)", "rng.below(self.plateau)"),
            "steps on one side": ("side * (", "("),
        },
    ),
    Layer(
        name="unit Poisson",
        code=poisson_and_binomial._unit_poisson,
        run=lambda code, rng, _: code(rng),
        cases=(Poisson(mean=1),),
        how={"open_mass": Fraction(1, 10**9), "runs": 3500},
        leftover=Fraction(1, 2000),
        broken=Poisson(mean=1),
        mutants={"compares with >=": ("drawn > guard", "drawn >= guard")},
    ),
    Layer(
        name="Poisson",
        code=Poisson.sample_reference,
        cases=tuple(Poisson(mean=m) for m in ("1/1000", "1/3", "1", "3/2", "2", "8/3")),
        stubs={
            "_unit_poisson": sampler_layers.unit_proven,
            "bernoulli": sampler_layers.bernoulli_proven,
        },
        how={"open_mass": Fraction(1, 10**7)},
        leftover=Fraction(1, 10**4),
        by_day=1,
        broken=Poisson(mean="2/3"),
        mutants={"thinned by the rest": ("bernoulli(rng, kept)", "bernoulli(rng, 1 - kept)")},
    ),
    Layer(
        name="binomial",
        code=Binomial.sample_reference,
        mass=sampler_layers.coin_mass,
        values=sampler_layers.around_trials,
        cases=tuple(
            Binomial(trials=n, probability=p)
            for n, p in ((1, "1/2"), (1, "1/3"), (5, "1/2"), (7, "2/3"), (9, "1/1000"))
        ),
        stubs={"bernoulli": sampler_layers.bernoulli_proven},
        leftover=NONE,
        broken=Binomial(trials=4, probability="1/3"),
        mutants={"one coin more": ("range(self.trials)", "range(self.trials + 1)")},
    ),
    Layer(
        name="Skellam",
        code=Skellam.sample_reference,
        cases=tuple(Skellam(variance=v) for v in ("1/50", "1/2", "1", "10/3")),
        stubs={"Poisson": sampler_layers.PoissonProven},
        leftover=Fraction(1, 10**20),
        broken=Skellam(variance="10/3"),
        mutants={"a sum for the difference": (") - half", ") + half")},
    ),
    Layer(
        name="urn",
        code=polya.urn,
        run=sampler_layers.part,
        cases=sampler_layers.polyas(("1/3", "1/2"), ("1/2", "2/3"), ("9/10", "1")),
        stubs={
            "geometric_exp": sampler_layers.geometric_exp_proven,
            "bernoulli": sampler_layers.bernoulli_proven,
        },
        how={"open_mass": Fraction(1, 10**9), "runs": 1500},
        leftover=Fraction(1, 100),
        broken=Polya(shape="1/3", scale="3/4"),
        mutants={"2 + i for 1 + i": ("/ (1 + i)", "/ (2 + i)")},
    ),
    Layer(
        name="Polya: geometrics and an urn",
        code=Polya.sample_reference,
        cases=sampler_layers.polyas(("1/3", "1/2"), ("4/3", "1/2"), ("5/2", "1/2"), ("2", "1/2")),
        stubs={
            "geometric_exp": sampler_layers.geometric_exp_proven,
            "urn": sampler_layers.urn_proven,
        },
        how={"open_mass": Fraction(1, 10**5), "runs": 5000},
        leftover=Fraction(1, 10**3),
    ),
    Layer(
        name="2/e",
        code=polya._two_over_e,
        run=lambda code, rng, _: code(rng),
        mass=sampler_layers.two_over_e_mass,
        values=sampler_layers.both,
        cases=(None,),
        stubs={"bernoulli": sampler_layers.bernoulli_proven},
        how={"open_mass": TINY},
    ),
    Layer(
        name="jump",
        code=polya.jump,
        run=sampler_layers.candidate,
        mass=sampler_layers.jump_mass,
        values=lambda _: range(1, 40),
        cases=exactly("1/3", "1", "2", "7/2", "8", "17/2"),
        stubs=JUMP_STUBS,
        how={"runs": 600},
        leftover=Fraction(1, 20),
        by_day=0,
        broken=Fraction(7, 2),
        mutants={
            "octave too short": ("unit + rng.bits(cell)", "unit + rng.bits(cell // 2)"),
            "decay forgotten": ("and bernoulli_exp(rng, excess)", ""),
        },
    ),
    Layer(
        name="sum of jumps",
        code=polya.sum_of_jumps,
        run=sampler_layers.part,
        cases=sampler_layers.polyas(("1/3", "3/2")),
        stubs=JUMPS_STUBS,
        how={"runs": 3000},
        leftover=Fraction(1, 20),
        by_day=0,
        broken=Polya(shape="1/3", scale="3/2"),
        mutants_by_day=0,
        mutants={"a cell forgotten": ("+ 1\n", "\n")},
    ),
)
