"""Tests of the pytest plugin: one false-alarm rate for a suite; broken mechanisms fail by name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from scipy.stats import binom

from tests.alpha_budget import buy_alpha
from tests.effort import by_day, effort
from tests.support.audit.plugin_runs import HEAD, PLUGIN, ROOT, Ran, mutant, ran, started

# Half of the alpha for each of the two suites whose audits must not refute.
ALPHA = buy_alpha("pytest plugin: small suites of correct mechanisms", "2e-9") / 2

TESTS = effort(50, 200)
MANY = f"""
@pytest.mark.parametrize("i", range({TESTS}))
@pytest.mark.dp
def test_it(dp, i): uniform(dp.buy())
"""


def test_a_suite_of_many_audits_states_one_rate_and_keeps_it(tmp_path: Path) -> None:
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


WHOLE = ("share = equal_share(run.alpha, run.collected * copies)", "share = run.alpha")


def test_the_budget_itself_stops_who_takes_the_whole(tmp_path: Path) -> None:
    run = ran(tmp_path, MANY, "-q", "--tb=line", "--dp-seed", "1", plugin=mutant(tmp_path, *WHOLE))
    assert run.code == 1
    assert "needs alpha = 1e-3, but only 0 of 1e-3 is left" in run.out
    assert f"{TESTS - 1} failed, 1 passed" in run.out


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
    assert told
    witnesses = re.findall(r"witness: .*", run.out)
    assert re.search(
        r"output .*: \d+ of \d+ runs on dataset A, \d+ of \d+ on dataset B", witnesses[0]
    )
    assert "does not draw from discrete-laplace:scale=9" in run.out
    assert "def assert_private" not in run.out  # the traceback ends in the test, not in the library
    (again,) = re.findall(r"again: pytest (test_suite.py::test_broken) (.*)", run.out)
    assert again[1].strip() == "--dp-seed 5 --dp-alpha 1/3000000000 --dp-effort quick"
    alone = ran(tmp_path, body, again[0], *again[1].split())
    assert alone.code == 1
    assert told[0] in alone.out
    assert witnesses[0] in alone.out
    fresh = [ran(tmp_path, body, again[0]).line for _ in range(effort(1, 2))]
    assert len({alone.line, *fresh}) == 1 + len(fresh)  # seeds are equal with probability 2^-32


REFUSED = {
    "epsilon=-1, pair=(0, 1)": "epsilon = -1: must be >= 0",
    "epsilon=float('nan')": "epsilon = nan: must be a finite number",
    "epsilon=1, delta=1": "delta = 1: must lie in [0, 1)",
    "delta='1e-6'": "delta = 1e-6: needs an epsilon",
    "epsilon=1, claim='epsilon=1'": "epsilon = 1: is given together with claim",
    "claim='privacy'": "claim = privacy: accepted are",
    "epsilon=1, relation='cousins'": "relation = cousins: must be",
    "epsilon=1, pair=3": "pair = 3: must be two datasets, e.g. (0, 1)",
    "epsilon=1, pairs=[]": "pairs = []: must be a list of pairs",
    "epsilon=1, pair=(0, 1), pairs=[(0, 1)]": "pair = (0, 1): is given together with pairs",
    "epsilon=1, runs=0": "runs = 0: must be a whole number from 1 to",
    "epsilon=1, audits=0.5": "audits = 0.5: must be",
    "epsilon=1, features='sign'": "features = sign: must be a list, ['sign']",
    "epsilon=1, features=['sing']": "feature = sing: ",
    "epsilom=1": "epsilom = 1: dp has the keywords claim, epsilon",
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


def test_marks_that_cannot_be_read_are_refused_at_collection_by_name(tmp_path: Path) -> None:
    marks = "".join(
        f"@pytest.mark.dp({words})\ndef test_{i}(dp): dp.audit(kept)\n"
        for i, words in enumerate(REFUSED)
    )
    run = ran(tmp_path, marks + GIVEN)
    assert run.code == pytest.ExitCode.USAGE_ERROR, run.out
    told = {f"test_{i}": words for i, words in enumerate(REFUSED.values())} | {
        "test_without": "fixture: a test marked dp must take the fixture dp",
        "test_every_example": "test = @given: and the fixture dp cannot be combined",
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
@pytest.mark.dp(epsilon=1)
def test_no_pair(dp): dp.audit(kept)
@pytest.mark.dp(claim="epsilon=2", audits=2)
def test_own_words(dp):
    dp.audit(kept, "epsilon=1", pair=(0, 1), runs=2000)
    dp.audit(kept, pairs=[(0, 1)])
    dp.audit(kept, pairs=[(0, 1)])
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
    for told in (
        "is marked dp but made no audit",
        "claim: must be given",
        "pair: must be given",
        "test_own_words makes more audits than its mark allows",
        "@pytest.mark.dp(audits=3)",
        "the fixture dp is for tests that are marked",
        "every output was the same",
    ):
        assert told in run.out
    assert run.out.count("NothingMeasured: ") >= 2


EXAMPLES = ("-m", "pytest", "examples/suite", "-p", PLUGIN, "-p", "no:cacheprovider", "-rs")


@pytest.mark.nightly
def test_the_example_suite_runs() -> None:
    """OpenDP has its own entropy, so the suite fails with the probability bought here."""
    alpha = buy_alpha("examples/suite", "1e-8")
    run = started(ROOT, *EXAMPLES, "--dp-alpha", str(alpha))
    assert run.code == 0, run.out
    assert re.search(r"dp: \d+ statistical tests ran, of \d+ collected: .* at most 1e-8", run.line)


HEAVY = (
    "numpy",
    "scipy",
    "dpcore.noise",
    "accounting",
    "audit.report",
    "audit.targets",
    "audit.sample_layer",
)

CONFTEST = f"""
import sys
def pytest_sessionfinish(session):
    print()
    print("loaded:", *(name for name in {HEAVY!r} if name in sys.modules))
"""
QUIET = "def test_it(): pass\n"
MARKED = (
    HEAD
    + """
from dpcore import DiscreteLaplace
@pytest.mark.dp(epsilon=1, pair=(0, 1), runs=2000)
def test_it(dp): dp.audit(kept)
"""
)


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


def test_a_suite_that_audits_nothing_loads_nothing(tmp_path: Path) -> None:
    run = installed(tmp_path)
    assert run.code == 0, run.out
    assert "\nloaded:\n" in run.out


@pytest.mark.nightly
def test_a_plugin_that_loads_numpy_is_caught(tmp_path: Path) -> None:
    name = mutant(tmp_path, "import argparse\n", "import argparse\nimport numpy\n")
    run = installed(tmp_path, plugin=name)
    assert "\nloaded: numpy\n" in run.out


@by_day(1)
@pytest.mark.parametrize("options", [(), ("-p", PLUGIN)], ids=["found", "found and named"])
def test_a_marked_test_audits_and_the_plugin_is_registered_once(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    run = installed(tmp_path, *options, "--dp-seed", "7", body=MARKED)
    assert run.code == 0, run.out
    assert run.line.startswith("dp: 1 statistical test ran, of 1 collected")
