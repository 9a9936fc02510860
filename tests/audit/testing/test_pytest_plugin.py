"""Tests of the pytest plugin: one false-alarm rate for a suite; broken mechanisms fail by name."""

from __future__ import annotations

import re
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest
from scipy.stats import binom

from audit.testing.alpha_budget import AlphaBudget
from audit.testing.pytest_plugin import _Run
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day, effort
from tests.support.audit.plugin_runs import HEAD, PLUGIN, ROOT, Ran, mutant, ran, started

# Half of the alpha for each of the two suites whose audits must not refute.
ALPHA = buy_alpha("pytest plugin: small suites of correct mechanisms", "2e-9") / 2

TESTS = effort(12, 200)


def test_a_suite_of_many_audits_has_its_stated_false_alarm_rate(tmp_path: Path) -> None:
    """Each audit is at the boundary of its claim, where it fails as often as alpha allows."""
    bought = buy_alpha("pytest plugin: a level of 1/2 shared by all audits", "1e-9")
    body = f"""
@pytest.mark.parametrize("i", range({TESTS}))
@pytest.mark.dp(epsilon=1, pair=(0, 1), runs=300)
def test_it(dp, i):
    assert dp.share == Fraction(1, {2 * TESTS})
    dp.audit(kept)
"""
    run = ran(tmp_path, body, "--dp-alpha", "0.5", "--dp-seed", "1", "-q")
    failed = re.findall(r"^FAILED.*$", run.out, re.MULTILINE)
    assert len(failed) <= binom.isf(bought, TESTS, 1 / (2 * TESTS)) < 11, run.out
    assert all("Refuted" in line for line in failed)
    assert run.line == (
        f"dp: {TESTS} statistical tests ran, of {TESTS} collected: if all their dp assertions "
        "are true, the probability that any fails is at most 0.5 (--dp-alpha 0.5); "
        "effort quick; --dp-seed 1 repeats"
    )


def test_a_broken_mechanism_fails_with_its_witness_and_how_to_repeat_it(tmp_path: Path) -> None:
    body = """
@audits
def test_kept(dp): dp.audit(kept)
@audits
def test_broken(dp): dp.audit(broken)
@audits
def test_fit(dp):
    from dpcore import DiscreteLaplace
    dp.fits(DiscreteLaplace(scale=1), DiscreteLaplace(scale=9))
"""
    run = ran(tmp_path, body, "--dp-seed", "5", "--dp-alpha", str(ALPHA))
    assert (run.code, "2 failed, 1 passed" in run.out) == (1, True), run.out
    told = re.search(r"broken violates epsilon=1 on the pair \(0, 1\): .*", run.out)
    witness = re.search(r"witness: output .*: \d+ of \d+ runs on dataset A, \d+ of .*", run.out)
    assert told
    assert witness
    assert "does not draw from discrete-laplace:scale=9" in run.out
    assert "def assert_private" not in run.out  # the traceback ends in the test, not in the library
    (again,) = re.findall(r"again: pytest (test_suite.py::test_broken) (.*)", run.out)
    assert again[1].strip() == "--dp-seed 5 --dp-alpha 1/3000000000 --dp-effort quick"
    alone = ran(tmp_path, body, again[0], *again[1].split())
    assert (alone.code, told[0] in alone.out, witness[0] in alone.out) == (1, True, True)


REFUSED = {
    "epsilon=-1, pair=(0, 1)": "epsilon = -1: must be >= 0",
    "delta='1e-6'": "delta = 1e-6: requires epsilon",
    "epsilon=1, claim='epsilon=1'": "epsilon = 1: is given together with claim",
    "epsilon=1, pair=3": "pair = 3: must be two datasets, e.g. (0, 1)",
    "epsilon=1, pairs=[]": "pairs = []: must be a list of pairs",
    "epsilon=1, audits=0.5": "audits = 0.5: must be",
    "epsilon=1, features='sign'": "features = sign: must be a list, e.g. ['sign']",
    "epsilom=1": "epsilom = 1: is not a keyword of dp; allowed are claim, epsilon",
    "1": "dp = (1,): takes only keywords: write @pytest.mark.dp(epsilon=1, pair=(0, 1))",
}


GIVEN = """
from hypothesis import given, strategies
@audits
@given(strategies.integers())
def test_every_example(dp, value): dp.audit(kept)
@audits
def test_without(): pass
def test(): pass
"""


def test_invalid_marks_are_refused_at_collection_by_name(tmp_path: Path) -> None:
    marks = "".join(
        f"@pytest.mark.dp({words})\ndef test_{i}(dp): dp.audit(kept)\n"
        for i, words in enumerate(REFUSED)
    )
    run = ran(tmp_path, marks + GIVEN)
    assert run.code == pytest.ExitCode.USAGE_ERROR, run.out
    told = {f"test_{i}": words for i, words in enumerate(REFUSED.values())} | {
        "test_without": "fixture: a test marked dp must take the fixture dp",
        "test_every_example": "test = @given: cannot be combined with the fixture dp",
    }
    for name, words in told.items():
        assert f"test_suite.py::{name}: @pytest.mark.dp: {words}" in run.out
    assert "audit.assert_private(noise, claim, pairs=[pair])" in run.out
    assert "no tests ran" in run.out


def test_a_test_that_audits_or_measures_nothing_fails(tmp_path: Path) -> None:
    body = """
@audits
def test_silent(dp): pass
@audits
def test_skipped(dp): pytest.skip("no peer here")
@pytest.mark.dp
def test_no_claim(dp): dp.audit(kept, pair=(0, 1))
@pytest.mark.dp(claim="epsilon=2", audits=2)
def test_own_words(dp):
    dp.audit(kept, "epsilon=1", pair=(0, 1), runs=2000)
    dp.audit(kept, pairs=[(0, 1)])
    dp.audit(kept, pairs=[(0, 1)])
@audits
def test_raises(dp): dp.audit(lambda bit: 1 // 0)
def test_unmarked(dp): pass
@audits
def test_constant(dp): dp.audit(lambda bit: 3)
@audits
def test_nan(dp): dp.audit(lambda bit, n, rng: np.full(n, np.nan))
@audits
def test_meant(dp): dp.audit(lambda bit: 3, allow_constant=True)
@pytest.mark.dp(epsilon=1, pair=(0, 1), audits=2, features=["sign", "identity"])
def test_features_of_the_mark_or_of_the_call(dp):
    assert dp.audit(kept)[0].features == ("sign", "identity")
    assert dp.audit(kept, features=["identity"])[0].features == ("identity",)
"""
    run = ran(tmp_path, body, "-rs", "--dp-seed", "1", "--dp-alpha", str(ALPHA))
    assert "6 failed, 2 passed, 1 skipped, 1 error" in run.out, run.out
    assert not re.search(r"/audit/(?!testing)\w+|def buy", run.out)  # tracebacks end in the test
    for told in (
        "is marked dp but made no audit",
        "claim: must be given",
        "test_own_words makes more audits than its mark allows",
        "@pytest.mark.dp(audits=3)",
        "the fixture dp requires that the test is marked",
        "every output was the same",
        "raised ZeroDivisionError: integer division or modulo by zero",
    ):
        assert told in run.out
    assert run.out.count("NothingMeasured: ") >= 2


# -- shares of alpha: fixed at collection, summed exactly ---------------------------------------

SHARED = """
import json, pathlib
def noted(dp):
    bought = dp.buy()
    with pathlib.Path("spent").open("a") as file: file.write(f"{bought.alpha} {bought.runs}\\n")
pytestmark = pytest.mark.dp(runs=70)
@pytest.mark.parametrize("i", range(3))
def test_each(dp, i): noted(dp)
@pytest.mark.dp(audits=2, runs=90)
def test_two(dp): noted(dp), noted(dp)
@pytest.mark.skip
def test_never(dp): noted(dp)
def test_red(dp): noted(dp); assert False
def test_last(dp): noted(dp)
"""
# Options, the alpha spent (7 tests collected; 1e-3/7 each), and how many tests spent it.
RUNS: dict[str, tuple[tuple[str, ...], list[str], int]] = {
    "all": ((), ["1/7000 70"] * 3 + ["1/14000 90"] * 2 + ["1/7000 70"] * 2, 6),
    "-k": (("-k", "each"), ["1/7000 70"] * 3, 3),
    "-x": (("-x",), ["1/7000 70"] * 3 + ["1/14000 90"] * 2 + ["1/7000 70"], 5),
    "a file's part": (("test_suite.py::test_two",), ["1/2000 90"] * 2, 1),
    "--deselect": (("--deselect", "test_suite.py::test_each", "-k", "two"), ["1/14000 90"] * 2, 1),
    "nightly": (("-k", "last", "--dp-effort=nightly", "--dp-alpha=7e-9"), ["1/1000000000 700"], 1),
    "nothing": (("-k", "never"), [], 0),
}  # fmt: skip


def truth(folder: Path, told: str) -> tuple[bool, list[str]]:
    """Whether the printed line agrees with the shares noted by the tests, and these notes."""
    file = folder / "spent"
    spent = file.read_text().splitlines() if file.exists() else []
    total = sum((Fraction(entry.split()[0]) for entry in spent), Fraction())
    found = re.search(r"at most (\S+) \(", told)
    rate = Fraction(found[1]) if found else Fraction()
    return total <= rate <= total * Fraction(101, 100), spent


@by_day(1)
@pytest.mark.parametrize("case", RUNS)
def test_shares_are_fixed_at_collection_and_do_not_depend_on_selection(
    tmp_path: Path, case: str
) -> None:
    options, spent, tests = RUNS[case]
    run = ran(tmp_path, SHARED, *options)
    assert truth(tmp_path, run.line) == (True, spent), run.out
    collected = 1 if case == "a file's part" else 7
    ending = "" if tests == 1 else "s"
    assert run.line.startswith(
        f"dp: {tests} statistical test{ending} ran, of {collected} collected"
    )


WHOLE = ("share = equal_share(run.alpha, run.collected * copies)", "share = run.alpha")
SUM, LAST = "sum(run.audited.values(), Fraction())", "self.audited.get(test, Fraction()) + price"


@by_day(2)
@pytest.mark.parametrize(
    ("old", "new"),
    [WHOLE, (LAST, "price"), (SUM, "max(run.audited.values())")],
    ids=["the whole for a share", "the last for the sum", "the largest for the sum"],
)
def test_a_share_that_is_too_large_or_a_line_below_the_spent_alpha_is_detected(
    tmp_path: Path, old: str, new: str
) -> None:
    run = ran(tmp_path, SHARED, plugin=mutant(tmp_path, old, new))
    if new == WHOLE[1]:
        assert "needs alpha = 1e-3, but only 0 of 1e-3 is left" in run.out
    else:
        assert truth(tmp_path, run.line)[0] is False


def test_a_test_collected_twice_is_counted_twice_and_each_run_has_a_new_seed(
    tmp_path: Path,
) -> None:
    twice = ("test_suite.py", "test_suite.py", "--keep-duplicates", "-k", "last")
    run = ran(tmp_path, SHARED, *twice)
    assert truth(tmp_path, run.line) == (True, ["1/14000 70"] * 2), run.out
    assert run.line.startswith("dp: 2 statistical tests ran, of 14 collected")
    assert ran(tmp_path, SHARED, *twice).line != run.line  # equal with probability 2^-32


def test_an_interrupted_run_states_the_spent_alpha(tmp_path: Path) -> None:
    body = (
        SHARED
        + """
import os, signal
@pytest.mark.dp(epsilon=1, pair=(0, 1))
def test_z(dp):
    def stop(bit):
        os.kill(os.getpid(), signal.SIGINT)
        return bit
    signal.signal(signal.SIGINT, signal.default_int_handler)
    dp.audit(stop)
@pytest.mark.dp
def test_zz(dp): noted(dp)
"""
    )
    run = ran(tmp_path, body, "-k", "last or test_z")
    assert run.code == pytest.ExitCode.INTERRUPTED, run.out
    assert "dp: 2 statistical tests ran, of 9 collected" in run.line
    assert "at most 2.23e-4" in run.line


@pytest.mark.nightly
def test_workers_share_one_seed_and_one_budget(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    for options, tests in ((("-n", "2"), 6), (("-n", "2", "--dist", "each"), 6)):
        (tmp_path / "spent").unlink(missing_ok=True)
        run = ran(tmp_path, SHARED, *options)
        assert truth(tmp_path, run.line)[0] is True, run.out
        assert f"dp: {tests} statistical tests ran, of 7 collected" in run.line
    bad = "@pytest.mark.dp(epsilon=-1)\ndef test_it(dp): pass\n"
    run = ran(tmp_path, bad, "-n", "2")
    assert (run.code, "@pytest.mark.dp: epsilon = -1" in run.out) == (1, True)


def test_a_rerun_of_a_test_repeats_its_first_audit() -> None:
    # A test that is run again after its failure asks for the same audit under the same name.
    run = _Run(alpha=Fraction(1, 10), effort="quick", seed=1, budget=AlphaBudget("1/10"))
    first, again = (run.bought("test_red", Fraction(1, 10), 1, 70) for _ in range(2))
    assert first == again
    assert run.audited == {"test_red": Fraction(1, 10)}


# -- installed suites ----------------------------------------------------------------------------

EXAMPLES = ("-m", "pytest", "examples/suite", "-p", PLUGIN, "-p", "no:cacheprovider", "-rs")


@pytest.mark.nightly
def test_the_example_suite_passes() -> None:
    """OpenDP has its own entropy, so the suite fails with the probability bought here."""
    alpha = buy_alpha("examples/suite", "1e-8")
    run = started(ROOT, *EXAMPLES, "--dp-alpha", str(alpha))
    assert run.code == 0, run.out
    assert re.search(r"dp: \d+ statistical tests ran, of \d+ collected: .* at most 1e-8", run.line)


CONFTEST = """
import sys
heavy = ("numpy", "scipy", "dpcore.noise", "accounting", "audit.report", "audit.targets")
def pytest_sessionfinish(session):
    print()
    print("loaded:", *(name for name in (*heavy, "audit.sample_layer") if name in sys.modules))
"""
QUIET = "def test_it(): pass\n"
MARKED = f"""{HEAD}
from dpcore import DiscreteLaplace
@pytest.mark.dp(epsilon=1, pair=(0, 1), runs=2000)
def test_it(dp): dp.audit(kept)
"""


def installed(folder: Path, *options: str, body: str = QUIET, plugin: str | None = None) -> Ran:
    """A suite with the entry points of pyproject.toml, as if dpcore were installed."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    points = declared["project"]["entry-points"]["pytest11"]
    place = folder / "site" / "dpcore_suite-0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: dpcore-suite\nVersion: 0\n")
    lines = [f"{name} = {plugin or module}" for name, module in points.items()]
    (place / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    # pytest's rewriting loader imports the modules that a distribution lists.
    packages = ("dpcore", "accounting", "audit", "bandits")
    (place / "RECORD").write_text("".join(f"{each}/__init__.py,,\n" for each in packages))
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_suite.py").write_text(body)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\nstrict = true\n")
    words = ("-m", "pytest", "-p", "no:cacheprovider", "-s", *options)
    return started(folder, *words, path=folder / "site")


def test_a_suite_without_audits_loads_nothing(tmp_path: Path) -> None:
    run = installed(tmp_path)
    assert run.code == 0, run.out
    assert "\nloaded:\n" in run.out


@pytest.mark.nightly
def test_a_plugin_that_loads_numpy_is_detected(tmp_path: Path) -> None:
    name = mutant(tmp_path, "import argparse\n", "import argparse\nimport numpy\n")
    run = installed(tmp_path, plugin=name)
    assert "\nloaded: numpy\n" in run.out


@pytest.mark.nightly
@pytest.mark.parametrize("options", [(), ("-p", PLUGIN)], ids=["found", "found and named"])
def test_a_marked_test_audits_and_the_plugin_is_registered_once(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    run = installed(tmp_path, *options, "--dp-seed", "7", body=MARKED)
    assert run.code == 0, run.out
    assert run.line.startswith("dp: 1 statistical test ran, of 1 collected")
