r"""Tests of refusals by ``budget`` and ``protocol``: exit code 2, one line that names the option.

Hostile values of every option are in tests/repository/test_command_fuzz.py; here each kind of
mistake is checked to name the right option.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.support.run_command import typed

GIVEN: Final[dict[str, str]] = {
    "budget epsilon": "--noise discrete-laplace:scale=20 --delta 1e-6",
    "budget delta": "--noise discrete-laplace:scale=20 --epsilon 1",
    "budget curve": "--noise discrete-laplace:scale=20",
    "budget calibrate": "--noise skellam --epsilon 1 --delta 1e-6",
    "budget returning": "--noise discrete-laplace:scale=20",
    "budget dpsgd": (
        "--noise-multiplier 1.1 --batch-size 10 --examples 1000 --delta 1e-6 --epochs 1"
    ),
    "budget continual": "--horizon 4 --epsilon 1",
    "budget matrix": "--strategy tree --rounds 8 --noise gaussian:sigma=4 --delta 1e-6",
    "protocol plan": "--instance pure --users 12 --epsilon 1",
    "protocol simulate": "--instance pure --users 12 --epsilon 1",
}
"""What each command is given beside the words of a row, which replace what has their name."""

ALONE: Final = {
    "budget epsilon": "--noise skellam:variance=0 --noise - --rounds 1.5 --sensitivity l7=1 "
    "--poisson 101% --scheme poisson --relative 0 --delta 2 --group 0 --relation both",
    "budget delta": "--epsilon -1",
    "budget curve": "--least-delta 0.6 --points 1 --plot x.txt",
    "budget calibrate": "--noise gauss --epsilon 0 --delta 1 --honest 0 --rounds 0",
    "budget returning": "--visits 0 --delta 0",
    "budget dpsgd": "--truncate 0 --group 65 --sampling foo --epochs nan --batch-size 1001 "
    "--noise-multiplier 0 --delta 1",
    "budget continual": "--horizon 1e9 --epsilon 0 --delta 1 --high 0 --relation swap",
    "budget matrix": "--strategy banded:bands=99 --noise laplace:scale=1 --participations 0 "
    "--apart 1.5 --rounds 1e9 --delta 2 --sensitivity l1=2",
    "protocol plan": "--instance nothing --parameters best --users 1e30 --epsilon 0 --delta 1 "
    "--honest 110% --failure 0 --scaling 2 --precision 0 --coordinates 2",
    "protocol simulate": "--dropouts 100% --dropouts 12 --runs 0 --seed -1 --aggregation trust",
}
"""By command, options with a value that is refused by the option's name; "-" leaves it out."""

TOGETHER: Final[dict[str, list[tuple[str, str]]]] = {
    "budget epsilon": [
        ("--noise unary-encoding:epsilon=1", "unary-encoding:epsilon=1: values is missing"),
        ("--noise local-hashing:epsilon=1,values=9 --sensitivity 2", "--sensitivity = 2: must"),
        ("--noise local-hashing:epsilon=1,values=9 --poisson 1%", "--poisson = 1%: local reports"),
        ("--noise local-hashing:epsilon=1,values=9 --relation add-remove", "--relation"),
        (
            "--noise local-hashing:epsilon=1,values=9 --scheme poisson:rate=0.01",
            "--scheme = poisson:rate=0.01: local reports need the scheme shuffled:users=N",
        ),
        ("--scheme shuffled:users=2e4", "applies to local reports only"),
        ("--noise normal:sigma=1", ": must start with one of gaussian, laplace, "),
        ("--noise discrete-laplace:scale=1e-3999 --noise gaussian:sigma=1", "less extreme numbers"),
        ("--noise gausian:sigma=1", "; did you mean gaussian?"),
        ("--noise skellam:variance=9 --rounds 2e12", "--rounds = 2000000000000: must be at most"),
        ("--rounds 1 --rounds 2", "--rounds"),
        ("--scheme poisson:rate=1/9 --poisson 1%", "--scheme"),
        ("--scheme allocated:rounds=9", "--noise"),
        ("--scheme fixed-size:sample=1,population=2 --group 2", "--group"),
        ("--poisson 1% --relation replace", "--relation"),
        ("--poisson 1% --group 2", "--group"),
        ("--noise gaussian:sigma=1 --poisson 1% --group 2 --relation replace", "--group"),
    ],
    "budget calibrate": [
        ("--delta -", "use a delta > 0"),
        ("--rounds most --poisson most", "--poisson"),
        # 25 rounds meet epsilon = 2 with all of the noise, twelve with half of its variance.
        ("--noise gaussian:sigma=10 --rounds most --honest 50%", "--honest = 50%"),
        ("--noise gaussian:sigma=10 --poisson most --honest 50%", "--honest = 50%"),
        ("--epochs 1", "--batch-size"),
        ("--batch-size 10", "--examples"),
        ("--batch-size 10 --examples 100 --epochs 1/1000", "--epochs = 1/1000"),
        ("--batch-size 10 --examples 100 --poisson 10%", "--poisson = 10%"),
        ("--batch-size 10 --examples 100 --epochs 1 --rounds 7", "--rounds = 7"),
        ("--batch-size 11 --examples 10", "--batch-size = 11"),
        ("--noise discrete-gaussian --poisson 1% --relation replace", "--relation"),
        ("--noise gaussian:sigma=2 --poisson most --relation replace", "--relation"),
    ],
    "budget dpsgd": [
        ("--truncate 90 --certificate cut.json", "--certificate"),
        ("--truncate 9 --sampling fixed", "--truncate"),
        ("--sampling fixed --certificate fixed.json", "verify supports only noise with"),
        ("--truncate 9 --batch-size 1000", "--truncate"),
        ("--group 2 --sampling fixed", "--group"),
        ("--group 2 --relation replace", "--group"),
        ("--sampling allocated --relation replace", "--relation"),
        ("--sampling fixed --relation add-remove", "--relation"),
        ("--sampling shuffled --relation add-remove", "--relation"),
        ("--epochs 1e-9", "must be at least 10/1000: fewer epochs contain no batch"),
        ("--epochs -", "--epochs: give exactly one of --epochs and --rounds"),
        ("--rounds 1", "--epochs"),
        ("--epsilon 2", "--noise-multiplier = 1.1"),
        ("--noise-multiplier -", "--noise-multiplier: give"),
        ("--noise-multiplier - --epsilon 2 --truncate 9", "--truncate = 9"),
    ],
    "budget returning": [("--rounds 2 --visits 1", "--visits")],
    "budget continual": [("--unit 2/3", "--high")],
    "budget matrix": [
        ("--strategy square-root --noise discrete-gaussian:sigma_squared=4", "--strategy"),
        ("--noise -", "--noise: give exactly one of --noise and --epsilon"),
        ("--epsilon 3", "--noise = gaussian:sigma=4"),
        ("--noise gaussian:sigma=1e-3999", "less extreme numbers"),
    ],
    "protocol plan": [
        ("--instance local --parameters paper", "--parameters = "),
        ("--instance binary-shuffle --epsilon 1e400", "--epsilon = "),
        ("--instance renyi --delta 0", "--delta = "),
        ("--instance binary-shuffle --failure 5", "--failure = "),
        ("--instance renyi --scaling 0", "--scaling = "),
        ("--precision 4 --parameters paper", "--precision = "),
        ("--instance binary-shuffle --precision 5", "--precision = "),
        ("--instance binary-shuffle --coordinates 2", "--coordinates = "),
        ("--instance vector-shuffle --coordinates 0", "--coordinates = "),
        ("--users 1e17", "modulus = "),
        ("--users 10 --honest 0.3", "--honest = 3/10: is too small"),
    ],
    "protocol simulate": [
        ("--dropouts 6 --aggregation masked", "--dropouts = "),
        ("--instance binary-shuffle --aggregation masked", "--aggregation = "),
    ],
}
"""By command, words that replace or are added, and what the line names."""

ROWS: Final = [
    *(
        (command, f"{option} {value}", option)
        for command, words in ALONE.items()
        for option, value in zip(words.split()[::2], words.split()[1::2], strict=True)
    ),
    *((command, *row) for command, rows in TOGETHER.items() for row in rows),
]


def words_of(command: str, changed: str) -> list[str]:
    pairs = changed.split()
    options = [*zip(pairs[::2], pairs[1::2], strict=True)]
    replaced = {name for name, _ in options}
    usual = GIVEN[command].split()
    kept = [*zip(usual[::2], usual[1::2], strict=True)]
    given = [pair for pair in kept if pair[0] not in replaced]
    given += [pair for pair in options if pair[1] != "-"]
    return [*command.split(), *(word for pair in given for word in pair)]


@pytest.mark.parametrize(("command", "changed", "named"), ROWS)
def test_a_mistake_is_one_line_that_names_the_option(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    command: str,
    changed: str,
    named: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = typed(capsys, *words_of(command, changed))
    assert (answer.code, answer.out) == (2, "")
    assert named in answer.err
    assert len(answer.err.strip().splitlines()) == 1
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("command", GIVEN)
def test_valid_options_are_accepted(capsys: pytest.CaptureFixture[str], command: str) -> None:
    more = {"budget returning": "--visits 1", "budget curve": "--points 2"}.get(command, "")
    assert typed(capsys, *words_of(command, more)).code == 0
