r"""The report of an audit of a training step: one line per check.

``docs/schemas/dpcore-dpsgd-1.json`` is the JSON schema of the report.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, Literal, TypeAlias

from audit.claims import format_p_value, level_upper
from audit.formats.junit_and_sarif import Case, Outcome
from audit.formats.result import Result, Statement, computed, fact, format_share
from audit.verdict_words_and_exit_codes import FAULTS, VERDICTS
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import Exact, Whole, check_fields
from dpcore.spec_syntax import word

CheckVerdict: TypeAlias = Literal["refuted", "fault", "passed", "nothing_measured"]
StepVerdict: TypeAlias = Literal["refuted", "not_refuted", "nothing_measured"]
Sampling: TypeAlias = Literal["poisson", "fixed"]

ASSUMED: Final = (
    "the training runs this step and releases nothing else about the data",
    "the random numbers given to the step are uniform, and independent between calls",
    (
        "clipping, noise and normaliser are the same at every step and for every gradient; only a "
        "few were tried"
    ),
)


_LARGEST: Final = Fraction(10**100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    r"""The stated DP-SGD parameters of a training step, as exact numbers.

    Let B = rate x records. If ``sampling`` is "poisson", a batch contains each of ``records``
    records independently with probability ``rate``. If ``sampling`` is "fixed", a batch contains
    exactly B records. The gradient of each record is clipped to l2 norm ``clip``. An update is the
    sum of the clipped gradients plus Gaussian noise, divided by B. The noise has standard deviation
    noise_multiplier x clip in each coordinate.
    """

    records: Whole = Whole(at_least=2, at_most=10**9)
    rate: Exact = Exact(
        within="(0, 1)", reason="at 0 batches are empty, and at 1 there is no sampling"
    )
    noise_multiplier: Exact = Exact(zero="adds no noise")
    clip: Exact = Exact(zero="clips every gradient to 0")
    sampling: Sampling = word(Sampling, "poisson")

    def __post_init__(self) -> None:
        check_fields(self)
        for name, value in (("noise_multiplier", self.noise_multiplier), ("clip", self.clip)):
            if not 1 / _LARGEST <= value <= _LARGEST:
                reason = "must be in [1e-100, 1e100]: gradients are floats"
                raise InvalidParameter(name, value, reason)
        if self.sampling == "fixed" and self.expected.denominator != 1:
            reason = "must make rate x records a whole number of records"
            raise InvalidParameter("rate", self.rate, reason)

    @property
    def expected(self) -> Fraction:
        r"""The expected number of records in a batch, by which the sum of gradients is divided."""
        return self.rate * self.records


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    r"""The result of one check of a training step."""

    name: str
    verdict: CheckVerdict
    statement: str
    p_value: float | None = None

    @property
    def failed(self) -> bool:
        return self.verdict in {"refuted", "fault"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport(Result):
    r"""The report of an audit of a training step: the result of each check."""

    SCHEMA: ClassVar[str] = "dpcore-dpsgd/1"

    target: str = fact("the step as text")
    stated: Stated = fact(
        '{"records", "rate", "noise_multiplier", "clip": exact, as text; "sampling"}', kind="dict"
    )
    alpha: Fraction = fact(
        "the false-alarm level of all statistical checks together", write=level_upper, kind="float"
    )
    checks: tuple[Check, ...] = fact(
        '[{"name", "verdict", "statement", "p_value"}]; the verdict is "refuted" (the p-value is '
        'at most the check\'s share of alpha), "fault" (a counterexample), "passed" or '
        '"nothing_measured"'
    )
    batches: int = fact("batches drawn")
    updates: int = fact("calls of update()")
    seed: int = fact("the seed that repeats the audit")
    versions: dict[str, str] = fact('{"dpcore", "python", "numpy"}', default_factory=dict)

    @computed("a list of sentences", before="seed")
    def assumptions(self) -> tuple[str, ...]:
        return ASSUMED

    @computed(
        "the verdict of all checks", kind="Literal['refuted', 'not_refuted', 'nothing_measured']",
        before="alpha",
    )  # fmt: skip
    def verdict(self) -> StepVerdict:
        r"""The verdict on all checks together.

        It is "refuted" if a check failed. Otherwise it is "nothing_measured" if a check could not
        be made, and "not_refuted" if all could.
        """
        found = {check.verdict for check in self.checks}
        if found & {"refuted", "fault"}:
            return "refuted"
        return "nothing_measured" if "nothing_measured" in found else "not_refuted"

    @property
    def exit_code(self) -> int:
        r"""The exit code: 0 not refuted, 1 a check failed, 4 a check could not be made."""
        return VERDICTS[self.verdict].exit_code

    def cases(self) -> Iterator[Case]:
        outcomes: dict[CheckVerdict, Outcome] = {"passed": "passed", "nothing_measured": "error"}
        for check in self.checks:
            yield Case(
                target=self.target,
                name=check.name,
                rule=f"dpcore-dpsgd-{check.name.replace(' ', '-')}",
                outcome=outcomes.get(check.verdict, "failed"),
                message=_line(check),
            )

    def statement(self) -> Statement:
        faults = any(check.verdict == "fault" for check in self.checks)
        only_faults = faults and not any(check.verdict == "refuted" for check in self.checks)
        words = (
            "differs from the stated step"
            if self.refuted
            else "against the stated sampling, clipping and noise"
        )
        cases = format_share(self.alpha, 6)
        return Statement(
            verdict=FAULTS if only_faults else VERDICTS[self.verdict].words,
            about=f"{self.target} {words}",
            rows=(
                *((check.name, _line(check)) for check in self.checks),
                (
                    "trust",
                    f"if the step were as stated, at most {cases} such audits would give REFUTED",
                ),
                *(("assumed", sentence) for sentence in ASSUMED),
                ("repeat", f"--seed {self.seed}"),
            ),
            style="bold red" if self.refuted else "bold yellow",
        )


def _line(check: Check) -> str:
    word = {"passed": "ok", "nothing_measured": "NOT MEASURED"}.get(check.verdict)
    weight = "" if check.p_value is None else f" (p-value {format_p_value(check.p_value)})"
    return f"{word or check.verdict.upper()}: {check.statement}{weight}"
