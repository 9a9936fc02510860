r"""A pytest plugin for audits in tests, with one false-alarm rate for the whole run.

    @pytest.mark.dp(epsilon="1", pair=(0, 1))
    def test_the_count_is_private(dp):
        dp.audit(noisy_count)

The mark ``dp`` states the claim, and the fixture ``dp`` audits the claim. Each marked test may
spend an equal share of ``--dp-alpha``. The share is fixed when tests are collected, before
deselection and before any result is known. So if all assertions are true, the probability that any
marked test of the run fails is at most ``--dp-alpha``, for any selection and order of the tests.

Without marked tests this module does nothing, and imports only pytest.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
from collections import ChainMap, Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from audit.audit_spec import AuditSpec
    from audit.claims import Claim, CurveClaim
    from audit.fit.fit import FitReport
    from audit.report.audit_report import AuditReport
    from audit.targets.target_syntax import Auditable
    from audit.testing.alpha_budget import AlphaBudget
    from dpcore.mechanism import Relation
    from dpcore.noise import Noise


_RUNS: Final = 20_000
_WORDS: Final = (
    "claim", "epsilon", "delta", "relation", "pair", "pairs", "runs", "audits", "features",
    "floats",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    r"""The settings in the marks of a test: a spec without target, and the number of audits."""

    spec: AuditSpec
    audits: int

    @classmethod
    def read(cls, *words: Mapping[str, Any]) -> Terms:
        r"""Merge the settings of all marks, outermost first; a closer mark overrides an outer mark.

        >>> Terms.read({"runs": 500, "audits": 2}, {"epsilon": 1, "runs": 900}).spec.runs
        900

        Raises :class:`dpcore.errors.InvalidParameter` if a setting is unknown, invalid or
        contradicts another setting.
        """
        from audit.audit_spec import AuditSpec
        from audit.claims import Claim
        from audit.features.parse_feature import read_feature
        from dpcore.errors import InvalidParameter
        from dpcore.numbers.parameter import integer

        given = dict(ChainMap(*map(dict, reversed(words))))
        for word, value in given.items():
            if word not in _WORDS:
                reason = f"is not a keyword of dp; allowed are {', '.join(_WORDS)}"
                raise InvalidParameter(word, value, reason)
        for one, other in (("claim", "epsilon"), ("claim", "delta"), ("pairs", "pair")):
            if one in given and other in given:
                raise InvalidParameter(
                    other, given[other], f"is given together with {one}: give only one of the two"
                )
        if "epsilon" in given:
            of = {"epsilon": given.pop("epsilon"), "delta": given.pop("delta", 0)}
            given["claim"] = Claim(**of, relation=given.get("relation", "replace"))
        elif "delta" in given:
            raise InvalidParameter("delta", given["delta"], "requires epsilon")
        audits = integer("audits", given.pop("audits", 1), at_least=1)
        spec = AuditSpec(**{"runs": _RUNS, **given})
        for feature in spec.features:
            read_feature(str(feature))
        return cls(spec=spec, audits=audits)


EFFORTS: Final = {"quick": 1, "nightly": 10}
r"""The factors of ``--dp-effort`` for the runs of every audit."""

_ALPHA: Final = Fraction(1, 1000)
_MARK: Final = (
    "dp(epsilon, delta=0, relation='replace', pair, pairs, runs=20000, audits=1, features, "
    "floats='test'): a "
    "test that audits with the fixture dp, at its share of --dp-alpha. claim='epsilon=1' or "
    "claim='rho=0.1' may be given instead of epsilon and delta. audits: the number of statistical "
    "assertions that share the test's alpha."
)


_GIVEN: Final = (
    "cannot be combined with the fixture dp: each example would be an audit that spends a part of "
    "--dp-alpha. For noise, write audit.assert_private(noise, claim, pairs=[pair]) in the test, "
    "without the mark: this is a proof and spends nothing. For code that must be run, write "
    "@pytest.mark.parametrize('pair', [...]) instead of @given"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditBudget:
    r"""The level, seed and number of runs that one statistical assertion may use."""

    alpha: Fraction
    seed: int
    runs: int


@dataclass(slots=True, kw_only=True)
class _Run:
    alpha: Fraction
    effort: str
    seed: int
    budget: AlphaBudget | None = None  # set if there is a marked test
    collected: int = 0
    audited: dict[str, Fraction] = field(default_factory=dict)
    lost: int = 0

    def bought(self, test: str, price: Fraction, place: int, runs: int) -> AuditBudget:
        name = f"{test} #{place}"
        # Rerunning a failed test spends nothing, because the first attempt already fails the run.
        if self.budget is not None and name not in self.budget.bought:
            self.budget.buy(name, price)
            self.audited[test] = self.audited.get(test, Fraction()) + price
        digest = hashlib.sha256(f"{self.seed} {name}".encode()).digest()
        return AuditBudget(
            alpha=price,
            seed=int.from_bytes(digest[:4], "big"),
            runs=runs * EFFORTS[self.effort],
        )


_RUN: Final = pytest.StashKey[_Run]()
_AUDITOR: Final = pytest.StashKey["Auditor"]()
_REFUSED: Final = pytest.StashKey[str]()
_SHARE: Final = pytest.StashKey[tuple[str, Terms, Fraction]]()


@dataclass(slots=True, kw_only=True)
class Auditor:
    r"""The fixture ``dp``, which audits with the settings of the mark of the test.

    Every call of :meth:`audit`, :meth:`fits` or :meth:`buy` uses one of the ``audits`` of the mark,
    and an equal part of the alpha of the test. ``name`` distinguishes tests with the same
    ``nodeid``.
    """

    nodeid: str
    name: str
    terms: Terms
    share: Fraction
    run: _Run = field(repr=False)
    bought: int = 0

    def buy(self, runs: int | None = None) -> AuditBudget:
        r"""Return the level, seed and number of runs for a custom statistical test.

        The test must reject if and only if its p-value is at most the level. Raises
        :class:`audit.testing.alpha_budget.BudgetExceeded` if all ``audits`` of the mark are used.
        """
        __tracebackhide__ = True
        if self.bought == self.terms.audits:
            from audit.testing.alpha_budget import BudgetExceeded

            raise BudgetExceeded(
                f"{self.nodeid} makes more audits than its mark allows: write "
                f"@pytest.mark.dp(audits={self.bought + 1})"
            )
        self.bought += 1
        price = self.share / self.terms.audits
        return self.run.bought(
            self.name, price, self.bought, self.terms.spec.runs or 0 if runs is None else runs
        )

    def audit(  # noqa: PLR0913 - the options of assert_private
        self,
        target: Auditable,
        claim: Claim | CurveClaim | str | None = None,
        *,
        pair: tuple[Any, Any] | None = None,
        pairs: Iterable[tuple[Any, Any]] | None = None,
        runs: int | None = None,
        features: Iterable[str] | None = None,
        floats: str | None = None,
        allow_constant: bool = False,
        relation: Relation | str | None = None,
    ) -> tuple[AuditReport, ...]:
        r"""Audit as ``audit.testing.assert_private`` does; defaults come from the mark."""
        __tracebackhide__ = True
        from audit.testing.assertions import check_private

        words = {"claim": claim, "features": features, "floats": floats, "relation": relation}
        given: dict[str, Any] = {name: word for name, word in words.items() if word is not None}
        if pair is not None or pairs is not None:
            given |= {"pair": pair, "pairs": pairs}
        if not (claim is None or isinstance(claim, str)):
            given["relation"] = relation  # a claim object has its relation
        given |= asdict(self.buy(runs)) | {"target": target, "allow_constant": allow_constant}
        return check_private(replace(self.terms.spec, timeout=None, **given), again=self._again)

    def fits(self, sampler: Any, noise: Noise, *, runs: int | None = None) -> FitReport:
        r"""Test a sampler as :func:`audit.testing.fits.assert_fits` does."""
        __tracebackhide__ = True
        from audit.testing.fits import assert_fits

        return assert_fits(sampler, noise, **asdict(self.buy(runs)), again=self._again)

    @property
    def _again(self) -> str:
        # The command collects only this test, so the share of the test is all of alpha.
        run = self.run
        words = ("pytest", self.nodeid, "--dp-seed", str(run.seed), "--dp-alpha", str(self.share))
        return shlex.join((*words, "--dp-effort", run.effort))


@pytest.fixture
def dp(request: pytest.FixtureRequest) -> Auditor:
    r"""The auditor for ``@pytest.mark.dp``, with the test's share of ``--dp-alpha``."""
    fixed = request.node.stash.get(_SHARE, None)
    if fixed is None:
        pytest.fail(
            "the fixture dp requires that the test is marked @pytest.mark.dp(...) at collection, "
            "when the shares of --dp-alpha are fixed",
            pytrace=False,
        )
    name, terms, share = fixed
    auditor = Auditor(
        nodeid=request.node.nodeid,
        name=name,
        terms=terms,
        share=share,
        run=request.config.stash[_RUN],
    )
    request.node.stash[_AUDITOR] = auditor
    return auditor


def _alpha(text: str) -> Fraction:
    from dpcore.errors import InvalidParameter
    from dpcore.numbers.parameter import rational

    try:
        alpha = rational("--dp-alpha", text)
    except InvalidParameter as error:
        raise argparse.ArgumentTypeError(error.reason) from None
    if not 0 < alpha < 1:
        raise argparse.ArgumentTypeError(f"{text} must be in (0, 1)")
    return alpha


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} must be a whole number >= 0")
    return int(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    r"""Add the options --dp-alpha, --dp-effort and --dp-seed."""
    group = parser.getgroup("dp", "audits of differential privacy")
    group.addoption(
        "--dp-alpha",
        type=_alpha,
        default=_ALPHA,
        metavar="ALPHA",
        help="upper bound on the probability that any correct mechanism is refuted during the test "
        "run (default: 1/1000)",
    )
    group.addoption(
        "--dp-effort",
        choices=list(EFFORTS),
        default="quick",
        help="runs per audit: quick is the number in the mark, nightly ten times as many "
        "(default: quick)",
    )
    group.addoption(
        "--dp-seed",
        type=_seed,
        metavar="SEED",
        help="seed of the run; pass a printed seed to repeat that run (default: a random seed)",
    )


def pytest_configure(config: pytest.Config) -> None:
    r"""Register the mark, and choose the seed of the run or take the seed from pytest-xdist."""
    config.addinivalue_line("markers", _MARK)
    seed = getattr(config, "workerinput", {}).get("dp_seed", config.getoption("dp_seed"))
    config.stash[_RUN] = _Run(
        alpha=config.getoption("dp_alpha"),
        effort=config.getoption("dp_effort"),
        seed=int.from_bytes(os.urandom(4), "big") if seed is None else seed,
    )


# Run first, so that tests deselected later are counted: then -k, -m and shards change no share.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    r"""Read all ``dp`` marks, report invalid marks, and fix each test's share of alpha."""
    marked = [item for item in items if item.get_closest_marker("dp") is not None]
    if not marked:
        return
    from audit.testing.alpha_budget import AlphaBudget, equal_share
    from dpcore.errors import ABSENT, InvalidParameter

    run = config.stash[_RUN]
    run.collected = len(marked)
    run.budget = AlphaBudget(run.alpha)
    copies = getattr(config, "workerinput", {}).get("dp_copies", 1)
    share = equal_share(run.alpha, run.collected * copies)
    times: Counter[str] = Counter()
    for item in marked:
        # A test that is collected twice (--keep-duplicates) counts as two tests.
        times[item.nodeid] += 1
        again = times[item.nodeid]
        name = item.nodeid if again == 1 else f"{item.nodeid} ({again})"
        try:
            if "dp" not in getattr(item, "fixturenames", ()):
                raise InvalidParameter(
                    "fixture", ABSENT, "a test marked dp must take the fixture dp"
                )
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                raise InvalidParameter("test", "@given", _GIVEN)
            marks = reversed(list(item.iter_markers("dp")))
            item.stash[_SHARE] = (name, Terms.read(*map(_words, marks)), share)
        except InvalidParameter as error:
            item.stash[_REFUSED] = f"{item.nodeid}: @pytest.mark.dp: {error}"
    refused = [item.stash[_REFUSED] for item in marked if _REFUSED in item.stash]
    # A worker of pytest-xdist cannot refuse a collection, so there each of these tests fails.
    if refused and not hasattr(config, "workerinput"):
        raise pytest.UsageError("\n".join(refused))


def pytest_runtest_setup(item: pytest.Item) -> None:
    r"""Fail a test with an invalid mark before it runs."""
    if _REFUSED in item.stash:
        pytest.fail(item.stash[_REFUSED], pytrace=False)


def _words(mark: pytest.Mark) -> Mapping[str, Any]:
    from dpcore.errors import InvalidParameter

    if mark.args:
        raise InvalidParameter(
            "dp", mark.args, "takes only keywords: write @pytest.mark.dp(epsilon=1, pair=(0, 1))"
        )
    return mark.kwargs


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    r"""Fail a marked test that passed without an audit, because it tested nothing."""
    result = yield
    auditor = pyfuncitem.stash.get(_AUDITOR, None)
    if auditor is not None and not auditor.bought:
        pytest.fail("is marked dp but made no audit", pytrace=False)
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    r"""Send the collected tests and spent alphas of a pytest-xdist worker to the controller."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        run = session.config.stash[_RUN]
        output["dp"] = (run.collected, {name: str(paid) for name, paid in run.audited.items()})


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    r"""Give a worker of pytest-xdist the seed of the run and the number of copies of each test."""
    run = node.config.stash[_RUN]
    each = node.config.getoption("dist", "no") == "each"
    node.workerinput["dp_seed"] = run.seed
    node.workerinput["dp_copies"] = len(node.nodemanager.specs) if each else 1


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    r"""Add the collected tests and spent alphas of a finished worker of pytest-xdist."""
    del error
    run = node.config.stash[_RUN]
    account = getattr(node, "workeroutput", {}).get("dp")
    if account is None:
        run.lost += 1
        return
    run.collected = max(run.collected, account[0])
    for name, paid in account[1].items():
        run.audited[name] = run.audited.get(name, Fraction()) + Fraction(paid)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    r"""Print the number of statistical tests, their false-alarm rate, and how to repeat them."""
    run = config.stash[_RUN]
    if not run.collected:
        return
    from audit.testing.alpha_budget import format_up

    many = f"{len(run.audited)} statistical test{'' if len(run.audited) == 1 else 's'}"
    line = f"dp: {many} ran, of {run.collected} collected"
    if run.audited:
        most = format_up(sum(run.audited.values(), Fraction()))
        line += (
            ": if all their dp assertions are true, the probability that any fails is at most "
            f"{most} "
            f"(--dp-alpha {format_up(run.alpha)}); effort {run.effort}; "
            f"--dp-seed {run.seed} repeats"
        )
    if run.lost:
        workers = f"{run.lost} worker{'s' if run.lost > 1 else ''}"
        line += f"; tests of {workers} that crashed are not counted"
    terminalreporter.ensure_newline()
    terminalreporter.write_line(line)
