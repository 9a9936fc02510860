r"""Layers of the reference samplers of counts, Skellam and Polya noise, with mutants."""

from __future__ import annotations

from fractions import Fraction

from dpcore.laws import poisson, polya, polya_jumps
from dpcore.laws.binomial import Binomial
from dpcore.laws.poisson import Poisson
from dpcore.laws.polya import Polya
from dpcore.laws.skellam import Skellam
from tests.support.dpcore import layers
from tests.support.dpcore.layers import NONE, TINY, Layer, exactly

JUMP_STUBS = {
    "bernoulli": layers.bernoulli_proven,
    "bernoulli_exp": layers.bernoulli_exp_proven,
    "_two_over_e": layers.two_over_e_proven,
}
JUMPS_STUBS = {"Poisson": layers.FewArrivals, "jump": layers.jump_proven}


COUNT_LAYERS: tuple[Layer, ...] = (
    Layer(
        name="unit Poisson",
        code=poisson._unit_poisson,
        run=lambda code, rng, _: code(rng),
        cases=(Poisson(mean=1),),
        how={"open_mass": Fraction(1, 10**9), "runs": 6000},
        leftover=Fraction(1, 2000),
        broken=Poisson(mean=1),
        mutants_by_day=2,
        mutants={
            "starts at 0": ("size, guard, count = 1, 0, 1", "size, guard, count = 1, 0, 0"),
            "one choice too few": ("rng.below(size + 1) + 1", "rng.below(size) + 1"),
            "guard moves to size": ("guard = size + 1", "guard = size"),
            "guard never moves": ("            guard = size + 1\n", ""),
            "compares with >=": ("drawn > guard", "drawn >= guard"),
            "size stands still": ("        size += 1", "        size += 0"),
            "cut at 5": ("return count", "return min(count, 5)"),
        },
    ),
    Layer(
        name="Poisson",
        code=Poisson.sample_reference,
        cases=tuple(Poisson(mean=m) for m in ("1/1000", "1/3", "1", "3/2", "2", "8/3")),
        stubs={"_unit_poisson": layers.unit_proven, "bernoulli": layers.bernoulli_proven},
        how={"open_mass": Fraction(1, 10**7)},
        leftover=Fraction(1, 10**4),
        by_day=1,
        broken=Poisson(mean="5/3"),
        mutants_by_day=2,
        mutants={
            "fraction forgotten": ("if kept:", "if False:"),
            "thinned by the rest": ("bernoulli(rng, kept)", "bernoulli(rng, 1 - kept)"),
            "one unit too many": ("range(whole))\n", "range(whole + 1))\n"),
            "thinned once": (
                "sum(bernoulli(rng, kept) for _ in range(_unit_poisson(rng)))",
                "bernoulli(rng, kept) * _unit_poisson(rng)",
            ),
            # 2 units and a coin of probability -1/3, which is refused.
            "rounds the mean": ("math.floor(self.mean)", "round(self.mean + Fraction(1, 10))"),
        },
    ),
    Layer(
        name="Poisson with no layer stubbed",
        code=Poisson.sample_reference,
        cases=(Poisson(mean="1/2"),),
        how={"runs": 4000},
        leftover=Fraction(1, 10),
    ),
    Layer(
        name="binomial",
        code=Binomial.sample_reference,
        mass=layers.coin_mass,
        values=layers.around_trials,
        cases=tuple(
            Binomial(trials=n, probability=p)
            for n, p in ((1, "1/2"), (1, "1/3"), (5, "1/2"), (7, "2/3"), (9, "1/1000"))
        ),
        stubs={"bernoulli": layers.bernoulli_proven},
        leftover=NONE,
        broken=Binomial(trials=4, probability="1/3"),
        mutants={
            "one coin more": ("range(self.trials)", "range(self.trials + 1)"),
            "one coin fewer": ("range(self.trials)", "range(self.trials - 1)"),
            "tails for heads": (
                "bernoulli(rng, self.probability)",
                "bernoulli(rng, 1 - self.probability)",
            ),
        },
    ),
    Layer(
        name="binomial with no layer stubbed",
        code=Binomial.sample_reference,
        mass=layers.coin_mass,
        values=layers.around_trials,
        cases=tuple(Binomial(trials=n, probability="1/3") for n in (1, 5)),
        leftover=NONE,
    ),
    Layer(
        name="Skellam",
        code=Skellam.sample_reference,
        cases=tuple(Skellam(variance=v) for v in ("1/50", "1/2", "1", "10/3")),
        stubs={"Poisson": layers.PoissonProven},
        leftover=Fraction(1, 10**20),
        broken=Skellam(variance="10/3"),
        mutants={
            "a sum for the difference": (") - half", ") + half"),
            "the whole variance twice": ("self.variance / 2", "self.variance"),
            "one draw less itself": (
                "return half.sample_reference(rng) - half.sample_reference(rng)",
                "drawn = half.sample_reference(rng)\n    return drawn - drawn",
            ),
            "a truncated tail": (
                "half.sample_reference(rng) - half",
                "min(half.sample_reference(rng), 6) - half",
            ),
            "only one side": (") - half.sample_reference(rng)", ")"),
        },
    ),
)

POLYA_LAYERS: tuple[Layer, ...] = (
    Layer(
        name="urn",
        code=polya.urn,
        run=layers.part,
        cases=layers.polyas(("1/3", "1/2"), ("1/2", "2/3"), ("9/10", "1")),
        stubs={
            "geometric_exp": layers.geometric_exp_proven,
            "bernoulli": layers.bernoulli_proven,
        },
        how={"open_mass": Fraction(1, 10**9), "runs": 3000},
        leftover=Fraction(1, 100),
        broken=Polya(shape="1/3", scale="3/4"),
        mutants_by_day=1,
        mutants={
            "2 + i for 1 + i": ("/ (1 + i)", "/ (2 + i)"),
            "a unit skipped": ("range(geometric", "range(1, geometric"),
            "shape for 1 - shape": ("(shape + own)", "(1 - shape + own)"),
            "own forgotten": ("(shape + own)", "shape"),
            "scale for 1/scale": ("1 / scale", "scale"),
            "counts twice": ("own += 1", "own += 2 if i > 1 and own < i - 1 else 1"),
        },
    ),
    Layer(
        name="Polya: geometrics and an urn",
        code=Polya.sample_reference,
        cases=layers.polyas(("1/3", "1/2"), ("4/3", "1/2"), ("5/2", "1/2"), ("2", "1/2")),
        stubs={"geometric_exp": layers.geometric_exp_proven, "urn": layers.urn_proven},
        how={"open_mass": Fraction(1, 10**5), "runs": 5000},
        leftover=Fraction(1, 10**3),
        # One geometric, and an urn of shape 1: the same law another way.
        harmless={
            "an urn of shape 1": (
                "math.floor(self.shape)",
                "math.ceil(self.shape) - 1",
                Polya(shape=2, scale="1/2"),
            )
        },
    ),
    Layer(
        name="2/e",
        code=polya_jumps._two_over_e,
        run=lambda code, rng, _: code(rng),
        mass=layers.two_over_e_mass,
        values=layers.both,
        cases=(None,),
        stubs={"bernoulli": layers.bernoulli_proven},
        how={"open_mass": TINY},
        mutants={
            "trial starts at 2": ("trial = 3", "trial = 2"),
            "parity flipped": ("% 2 == 1", "% 2 == 0"),
            "counts by two": ("+= 1", "+= 2"),
        },
    ),
    Layer(
        name="jump",
        code=polya_jumps.jump,
        run=layers.candidate,
        mass=layers.jump_mass,
        values=lambda _: range(1, 40),
        cases=exactly("1/3", "1", "2", "7/2", "8", "17/2"),
        stubs=JUMP_STUBS,
        how={"runs": 1200},
        leftover=Fraction(1, 20),
        by_day=0,
        broken=Fraction(7, 2),
        mutants_by_day=1,
        mutants={
            "octave too short": ("unit + rng.bits(cell)", "unit + rng.bits(cell // 2)"),
            "unit coin forgotten": ("bernoulli(rng, Fraction(unit, size))", "True"),
            "decay forgotten": ("and bernoulli_exp(rng, excess)", ""),
            "one run less": ("range(run + 1)", "range(run)"),
            "runs cut": ("while rng.flip():", "while run < 2 and rng.flip():"),
            "decay counted twice": ("- (run + 1)", ""),
        },
    ),
    Layer(
        name="sum of jumps",
        code=polya_jumps.sum_of_jumps,
        run=layers.part,
        cases=layers.polyas(("1/3", "3/2")),
        stubs=JUMPS_STUBS,
        how={"runs": 3000},
        leftover=Fraction(1, 20),
        by_day=0,
        broken=Polya(shape="1/3", scale="3/2"),
        mutants_by_day=0,
        mutants={
            "a cell forgotten": ("+ 1\n", "\n"),
            "arrivals of one cell": ("mean=shape * cells", "mean=shape"),
        },
    ),
)
