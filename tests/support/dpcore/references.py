r"""The coins and the reference samplers of discrete Laplace and Gaussian noise, with mutants."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dpcore import DiscreteGaussian, DiscreteLaplace
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.sampling import coins
from dpcore.sampling.rng import Rng
from tests.support.dpcore import layers
from tests.support.dpcore.layers import NONE, TINY, Layer, exactly

EXPONENTS = exactly("0", "1/1000000", "1/3", "1/2", "0.7", "999/1000", "1")
LAPLACE = [DiscreteLaplace(scale=s) for s in ("1/3", "1/2", "1", "5/3", "4")]
LAPLACE_ROUND = {"kind": "geometric", "rounds": 1, "open_mass": NONE}
GAUSSIAN_STUBS: dict[str, Any] = {
    "DiscreteLaplace": layers.ProposalProven,
    "bernoulli_exp": layers.bernoulli_exp_proven,
    "Fraction": Fraction,
}
ONE_DRAW = "sum(one.sample_reference(rng) for _ in range(self.count))"
LAYERS: tuple[Layer, ...] = (
    Layer(
        name="below",
        code=Rng.below,
        run=lambda code, rng, bound: code(rng, bound),
        mass=layers.even,
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
            "accepts the bound itself": ("candidate < bound", "candidate <= bound"),
            "one bit too few": ("(bound - 1).bit_length()", "(bound - 1).bit_length() - 1"),
        },
    ),
    Layer(
        name="bernoulli",
        code=coins.bernoulli,
        run=layers.call,
        mass=layers.chance_of,
        values=layers.both,
        cases=exactly("0", "1", "1/2", "1/3", "6/7", "1/1000", "0.123456789"),
        leftover=NONE,
        broken=Fraction(1, 3),
        mutants={
            "off by one": ("< probability.numerator", "<= probability.numerator"),
            "float threshold": (
                "rng.below(probability.denominator) < probability.numerator",
                "rng.below(1 << 53) < float(probability) * 2**53",
            ),
        },
    ),
    Layer(
        name="bernoulli_exp up to one",
        code=coins._bernoulli_exp_unit,
        run=layers.call,
        mass=layers.decay,
        values=layers.both,
        cases=EXPONENTS,
        stubs={"bernoulli": layers.bernoulli_proven},
        how={"open_mass": TINY},
        broken=Fraction(1, 3),
        mutants={
            "trial starts at 0": ("trial = 1\n", "trial = 0\n"),
            "trial starts at 2": ("trial = 1\n", "trial = 2\n"),
            "parity flipped": ("% 2 == 1", "% 2 == 0"),
            "counts by two": ("trial += 1", "trial += 2"),
            "x for x/k": ("exponent / trial", "exponent"),
            "x/(k+1) for x/k": ("exponent / trial", "exponent / (trial + 1)"),
            "series cut after three terms": (
                "while bernoulli(rng, exponent / trial):",
                "while trial < 4 and bernoulli(rng, exponent / trial):",
            ),
            "float threshold": (
                "trial = 1\n",
                "return rng.bits(53) < 2.0**53 * 2.718281828459045**-exponent\n    trial = 1\n",
            ),
        },
    ),
    Layer(
        name="bernoulli_exp",
        code=coins.bernoulli_exp,
        run=layers.call,
        mass=layers.decay,
        values=layers.both,
        cases=(*EXPONENTS, *exactly("1.5", "2", "3.7", "20")),
        stubs={"_bernoulli_exp_unit": layers.decay_proven},
        broken=Fraction(27, 10),
        mutants={
            "rest dropped": ("return _bernoulli_exp_unit(rng, exponent)", "return True"),
            "a factor forgotten": ("exponent -= 1", "exponent -= 2"),
            "exponent cut at 2": ("while exponent > 1:", "while 1 < exponent <= 2:"),
        },
    ),
    Layer(
        name="bernoulli_exp down to the integers it asks for",
        code=coins.bernoulli_exp,
        run=layers.call,
        mass=layers.decay,
        values=layers.both,
        cases=exactly("0", "1/3", "1", "4/3", "2"),
        how={"runs": 4000},
        leftover=Fraction(1, 100),
    ),
    Layer(
        name="geometric_exp",
        code=coins.geometric_exp,
        run=layers.call,
        mass=layers.geometric,
        values=lambda _: range(40),
        cases=exactly("1", "2", "7/3", "1/2", "1/3", "3/5", "1/10"),
        stubs={"bernoulli_exp": layers.bernoulli_exp_proven},
        how={"kind": "below", "rounds": 1, "open_mass": TINY / 10},
        by_day=1,
        broken=Fraction(3, 2),
        mutants_by_day=2,
        mutants={
            "scale for 1/scale": (
                "exponent.numerator, exponent.denominator",
                "exponent.denominator, exponent.numerator",
            ),
            "fraction never rejected": ("            break", "            pass\n        break"),
            "whole starts at 1": ("whole = 0", "whole = 1"),
            "truncated tail": (
                "while bernoulli_exp(rng, Fraction(1)):",
                "while whole < 25 and bernoulli_exp(rng, Fraction(1)):",
            ),
            "rounds up": (
                "(fraction + unit * whole) // step",
                "-(-(fraction + unit * whole) // step)",
            ),
            "fraction forgotten": ("(fraction + unit * whole)", "(unit * whole)"),
            "float coin": (
                "while bernoulli_exp(rng, Fraction(1)):",
                "while rng.bits(53) < __import__('math').exp(-1) * 2**53:",
            ),
        },
    ),
    Layer(
        name="geometric_exp through its rejections",
        code=coins.geometric_exp,
        run=layers.call,
        mass=layers.geometric,
        values=lambda _: range(40),
        cases=exactly("2", "1/2", "7/3"),
        stubs={"bernoulli_exp": layers.bernoulli_exp_proven},
        how={"open_mass": Fraction(1, 1000)},
        leftover=Fraction(1, 999),
    ),
    Layer(
        name="discrete Laplace",
        code=DiscreteLaplace.sample_reference,
        cases=(*LAPLACE,),
        stubs={"geometric_exp": layers.geometric_exp_proven},
        how=LAPLACE_ROUND,
        afresh=(*LAPLACE,),
        broken=DiscreteLaplace(scale="3/2"),
        mutants={
            "negative zero not rejected": ("not (negative and magnitude == 0)", "True"),
            "zero rejected under both signs": ("negative and magnitude == 0", "magnitude == 0"),
            "scale for 1/scale": ("1 / self.scale", "self.scale"),
            "scale a thousandth of a millionth off": (
                "1 / self.scale",
                "1 / (self.scale + Fraction(1, 10**9))",
            ),
            "no sign": ("-magnitude if negative else magnitude", "magnitude"),
            "truncated tail": (
                "magnitude = geometric_exp(rng, 1 / self.scale)",
                "magnitude = min(geometric_exp(rng, 1 / self.scale), 100)",
            ),
        },
    ),
    Layer(
        name="discrete Laplace through its rejections",
        code=DiscreteLaplace.sample_reference,
        cases=(DiscreteLaplace(scale="1/2"), DiscreteLaplace(scale=2)),
        stubs={"geometric_exp": layers.geometric_exp_proven},
        how={"open_mass": Fraction(1, 10**9)},
        leftover=Fraction(1, 10**8),
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
        how={"kind": "proposal", "rounds": 1, "open_mass": NONE},
        afresh=tuple(DiscreteGaussian(sigma_squared=v) for v in ("1/4", 1, 5)),
        short={"DiscreteLaplace": layers.ShortProposal},
        broken=DiscreteGaussian(sigma_squared="28/3"),
        mutants_by_day=4,
        mutants={
            "sigma for sigma squared": (
                "(2 * self.sigma_squared)",
                "(2 * math.isqrt(math.floor(self.sigma_squared)))",
            ),
            "factor two lost": ("(2 * self.sigma_squared)", "self.sigma_squared"),
            "gap not squared": ("gap * gap", "abs(gap)"),
            "float exponent": ("gap * gap /", "Fraction(float(gap) ** 2) /"),
            "centre forgotten": (
                "abs(candidate) - self.sigma_squared / scale",
                "Fraction(abs(candidate))",
            ),
            "sign of the gap": (
                "abs(candidate) - self.sigma_squared",
                "abs(candidate) + self.sigma_squared",
            ),
            "abs forgotten": (
                "abs(candidate) - self.sigma_squared",
                "candidate - self.sigma_squared",
            ),
            "never rejected": (
                "if bernoulli_exp(rng, gap * gap / (2 * self.sigma_squared)):",
                "if True:",
            ),
        },
        # The law is right with any proposal: what is lost is speed, and the test must not cry.
        harmless={
            "proposal too narrow": (
                "math.isqrt(math.floor(self.sigma_squared)) + 1",
                "1",
                DiscreteGaussian(sigma_squared="1/3"),
            )
        },
    ),
    Layer(
        name="sum of discrete Gaussians",
        code=DiscreteGaussianSum.sample_reference,
        cases=tuple(
            DiscreteGaussianSum(count=n, sigma_squared=v)
            for n, v in ((1, "1"), (2, "1/4"), (3, "1/4"), (2, "1"))
        ),
        stubs={"DiscreteGaussian": layers.GaussianProven},
        leftover=Fraction(1, 10**20),
        broken=DiscreteGaussianSum(count=2, sigma_squared="1/4"),
        mutants={
            "one draw short": ("range(self.count)", "range(self.count - 1)"),
            "one draw, multiplied": (ONE_DRAW, "self.count * one.sample_reference(rng)"),
            "one wide draw": (
                ONE_DRAW,
                "DiscreteGaussian(sigma_squared=self._whole).sample_reference(rng)",
            ),
            "sigma for sigma squared": (
                "DiscreteGaussian(sigma_squared=self.sigma_squared)",
                "DiscreteGaussian(sigma_squared=Fraction(1, 2))",
            ),
        },
    ),
)
