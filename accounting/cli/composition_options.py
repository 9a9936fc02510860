r"""Options that several commands share, and the lists of releases that the options describe."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from dpcore.cli.files import read_text
from dpcore.cli.options import named, option, read_law, share
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import whole_number
from dpcore.parse_noise import read_sensitivity

if TYPE_CHECKING:
    from accounting.composition.compose import Composition
    from accounting.descriptions.description import Description
    from accounting.descriptions.real_noise import RealNoise
    from accounting.guarantees.guarantee import Guarantee
    from dpcore.local import LocalReport

NOT_BOTH: Final = "cannot be combined with --poisson: write poisson:rate=1/100"
"""The error if both ``--scheme`` and ``--poisson`` are given."""

Delta = Annotated[
    str, option("DELTA", "The delta of the guarantee, e.g. 1e-6; 0 for pure DP.", default=...)
]
Relative = Annotated[str, option("WIDTH", "The relative width of the two bounds.", default=...)]
CertificateFile = Annotated[
    Path | None,
    option("FILE", "Also write a certificate of this epsilon, for dpcore verify.", default=...),
]
Group = Annotated[
    str,
    option(
        "K",
        "Group privacy: protect K people together, all replaced, or all added or removed.",
        default=...,
    ),
]


def relation_option(usual: str = "", default: Any = None) -> Any:
    r"""Declare ``--relation``, whose help describes the default by the text ``usual``."""
    text = (
        "How neighbouring datasets differ: by replacing one person (replace), or by adding or "
        "removing one (add-remove)."
    )
    text += f" (default: {usual})" if usual else ""
    return option("WORD", text, default=default, case_sensitive=False)


Neighbours = Annotated[
    Relation | None,
    relation_option(
        "replace without sampling and for samples of a fixed size, otherwise add-remove",
        default=...,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    r"""Options, as text, for the releases of one batch: one group of values per --noise."""

    noise: list[str] | None = option(
        "NOISE",
        "The noise of the release, e.g. skellam:variance=400; repeat for further queries of "
        "the same batch, charged together.",
    )
    sensitivity: Annotated[
        list[str] | None,
        option(
            "D",
            "The largest change that one person can cause in the answer (1 for a count); for "
            "vectors l1=3, l2-squared=4 or box=1x2 (a bound on each entry). Give it once, or once "
            "per --noise. (default: 1)",
            default=...,
        ),
    ] = None
    rounds: Annotated[
        list[str] | None,
        option(
            "K",
            "The number of releases, e.g. 1e3. Give it once, or once per --noise. (default: 1)",
            default=...,
        ),
    ] = None
    poisson: Annotated[
        list[str] | None,
        option(
            "RATE",
            "Poisson subsampling: the probability that a person takes part in a round, e.g. 1% or "
            "256/60000, drawn again each round and kept secret. --sensitivity then refers to "
            "adding a person. Give it once, or once per --noise. (default: 100%)",
            default=...,
        ),
    ] = None
    scheme: Annotated[
        list[str] | None,
        option(
            "SCHEME",
            "Another sampling scheme: fixed-size:sample=10,population=1000, allocated:rounds=100 "
            "(one random round per epoch; --rounds counts epochs) or "
            "truncated:rate=1/9,examples=90,most=20 (Poisson samples truncated to a largest size); "
            "for local reports shuffled:users=1000 (the number of honest users, whose reports "
            "arrive in a random order). Give it once, or once per --noise.",
            default=...,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases(Batch):
    r"""Options, as text, that describe a list of releases."""

    noise: list[str] = option(
        "NOISE",
        "The noise of a release, e.g. skellam:variance=400; for noise added in floats "
        "gaussian:sigma=1.1 or laplace:scale=2; or a local report of each person, e.g. "
        "randomised-response:epsilon=1,values=10. Repeat it for further releases.",
        default=...,
    )
    relation: Neighbours = None
    group: Group = "1"

    def described(self) -> list[tuple[Description, int]]:
        r"""The description of each release, and its number of rounds.

        The default relation is the first one in ``words`` of the :class:`Scheme`.
        """
        from accounting.descriptions.description import Description
        from accounting.descriptions.real_noise import REAL_LAWS
        from accounting.descriptions.sampling_schemes import EVERYONE, Poisson, read_scheme
        from dpcore.local import FAMILIES

        count, people = len(self.noise), whole("--group", self.group, 1)
        if self.poisson and self.scheme:
            raise InvalidParameter("--scheme", " ".join(self.scheme), NOT_BOTH)
        option = "--poisson" if self.poisson else "--scheme"
        kinds: dict[str, type[RealNoise | LocalReport]] = {**REAL_LAWS, **FAMILIES}
        found: list[tuple[Description, int]] = []
        for text, move, time, scheme in zip(
            self.noise,
            _each("--sensitivity", self.sensitivity or [], count, "1"),
            _each("--rounds", self.rounds or [], count, "1"),
            _each(option, self.poisson or self.scheme or [], count, EVERYONE.text),
            strict=True,
        ):
            rounds, noise = whole("--rounds", time, 1), read_law("--noise", text, kinds)
            how = Poisson(rate=rate_of(scheme)) if self.poisson else read_scheme(option, scheme)
            try:
                with _named():
                    release = Description(
                        noise=noise,
                        sensitivity=read_sensitivity("--sensitivity", move),
                        scheme=how,
                        relation=self.relation,
                        group=people,
                    )
            except InvalidParameter as error:
                if error.argument != "--scheme":
                    raise
                raise InvalidParameter(option, scheme, error.reason) from None
            found.append((release, rounds))
        return found

    def composed(self) -> Composition:
        from accounting.composition.compose import compose

        releases = self.described()
        with _named():
            return compose(*releases)

    def visit(self, visits: str) -> tuple[Guarantee, tuple[str, ...]]:
        r"""The guarantee of one visit of a returning user, and its assumptions.

        A visit is a single release. Raises :class:`InvalidParameter` if the options describe
        several.
        """
        total = self.composed()
        if total.rounds != 1:
            reason = "replaces --rounds: omit --rounds, and give exactly one --noise"
            raise InvalidParameter("--visits", visits, reason)
        return total.parts[0][0], total.assumptions


_named: Final = partial(
    named, "noise", "sensitivity", "scheme", "relation", "group",
    sigma="--noise", scale="--noise", members="--group",
)  # fmt: skip


def rate_of(text: str) -> Fraction:
    r"""Parse a sampling rate: 1%, 0.01 or 256/60000."""
    if not (rate := share("--poisson", text)):
        raise InvalidParameter("--poisson", text, "must be above 0%: otherwise no unit is sampled")
    return rate


def exactly_one(first: str, value: object, second: str, other: object) -> None:
    r"""Raise :class:`InvalidParameter` unless exactly one of two options is given."""
    if (value in (None, [])) == (other in (None, [])):
        text = " ".join(value) if isinstance(value, list) else value
        raise InvalidParameter(first, text or ABSENT, f"give exactly one of {first} and {second}")


_MOST: Final = 1 << 62
_LONGEST: Final = 1 << 16
_MOST_NAMES: Final = 1 << 28  # the largest size of a file of keys or users, in bytes


def whole(argument: str, text: str, at_least: int = 0) -> int:
    r"""Parse an integer such as 1000 or 1e3, from ``at_least`` to 2^62."""
    return whole_number(argument, text, at_least=at_least, at_most=_MOST)


def counts(argument: str, text: str) -> list[int]:
    r"""Parse a list of integers >= 1, such as ``1,5``, ``1,2,3,...,10`` or ``1,2,4,...,64``."""
    found: list[int] = []
    dots = False
    for part in (piece.strip() for piece in text.split(",")):
        if part in ("...", "\N{HORIZONTAL ELLIPSIS}"):
            if dots or len(found) < 3:
                must = "each '...' must follow three numbers"
                raise InvalidParameter(argument, text, must)
            dots = True
            continue
        last = whole(argument, part, 1)
        found += [*_between(argument, text, found[-3:], last), last] if dots else [last]
        dots = False
    if dots:
        raise InvalidParameter(argument, text, "'...' must be followed by a number")
    return found


def _between(argument: str, text: str, before: list[int], last: int) -> list[int]:
    # The terms between those `before` and the last one; the next term is ratio x term + step.
    first, second, third = before
    if not first < second < third < last:
        raise InvalidParameter(argument, text, "the numbers around '...' must increase")
    ratio: Fraction | int = Fraction(third, second)
    step = third - second
    if Fraction(second, first) == ratio:
        step = 0
    elif second - first == step:
        ratio = 1
    else:
        reason = "the numbers before '...' must have equal steps or equal ratios"
        raise InvalidParameter(argument, text, reason)
    found: list[int] = []
    at = third * ratio + step
    while at < last and len(found) < _LONGEST:
        found.append(int(at))
        at = at * ratio + step
    if at != last:
        reason = f"the sequence does not contain {last}: end with one of its terms"
        raise InvalidParameter(argument, text, reason)
    return found


def read_names(argument: str, path: str, what: str) -> list[str]:
    r"""Names of users or keys, one per line of a file, or of standard input for ``-``.

    Only line ends (LF or CRLF) separate names.
    """
    if path != "-" and not Path(path).exists():
        reason = f"there is no such file: give a file with one {what} per line"
        raise InvalidParameter(argument, path, reason)
    text = read_text(argument, path, most=_MOST_NAMES, stdin=True)
    if not text.strip():
        raise InvalidParameter(argument, path, "is empty")
    names = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    for number, name in enumerate(names, 1):
        if not name.strip():
            raise InvalidParameter(argument, path, f"line {number} is empty: remove it")
    return names


def _each(argument: str, given: list[str], count: int, otherwise: str) -> list[str]:
    # Repeat a single value for all groups, or check that there is one value per group.
    values = given if len(given) > 1 else [*(given or [otherwise])] * count
    if len(values) != count:
        reason = f"must be given once, or once per --noise (here {count})"
        raise InvalidParameter(argument, " ".join(given), reason)
    return values
