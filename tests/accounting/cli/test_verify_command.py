r"""Tests of ``dpcore verify``: verdicts, exit codes, and the package that reads each schema."""

from __future__ import annotations

import json
import time
from fractions import Fraction
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting import Finding, Status, Verdict, verify
from accounting.certificates import verify_certificate
from accounting.certificates.canonical_text import digest_of
from accounting.certificates.certify import certify
from accounting.cli import certificate as certificate_command
from accounting.privacy_curves.release_curve import PrivacyCurve
from bandits import BatchedElimination, Bernoulli, SumPrivatizer, play
from bandits.certificates.certify_run import certificate_of
from bandits.certificates.recheck import SCHEMA
from bandits.privatizers.batch_sums_by_trust_model import PureShufflePrivatizer
from dpcore import DiscreteGaussian, Skellam, SystemRng
from dpcore.sampling.rng import SeededRng
from tests.accounting.certificates.conftest import clear
from tests.support.accounting.handwritten_certificates import certificate, enclosed, noise
from tests.support.run_command import Answer, Command, typed

READER = EntryPoint(SCHEMA, "bandits.certificates.recheck:recheck", certificate_command.GROUP)


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    def found(*, group: str, name: str) -> list[EntryPoint]:
        return [READER] if (group, name) == (READER.group, READER.name) else []

    monkeypatch.setattr(certificate_command, "entry_points", found)

    def run(text: str | bytes, *words: object) -> Answer:
        place = tmp_path / "c.json"
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
        return typed(capsys, "verify", place, *words)

    return run


def of_a_run(*, trust: str = "pure", simulated: bool = False, most_steps: int = 100) -> str:
    private: Any = SumPrivatizer(trust=trust, epsilon="1/2", failure="1e-3")  # type: ignore[arg-type]  # one of the six
    run = play(
        BatchedElimination(privatizer=private),
        Bernoulli(means=(0.9, 0.1)),
        horizon=60,
        world=np.random.default_rng(1),
        rng=SeededRng(1) if simulated else SystemRng(),
    )
    return certificate_of(run, deltas=["1e-6"], most_steps=most_steps).text()


def of_one_gaussian() -> str:
    curve = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1)
    return certify(curve, deltas=["1e-6"]).text()


def test_the_certificate_of_an_honest_run_holds(command: Command) -> None:
    answer = command(of_a_run())
    assert answer.code == 0
    lines = answer.out.splitlines()
    claim = "claims[0] (epsilon): holds: epsilon <= 0.4999984 at delta 1/1000000: at least the"
    assert lines[0].startswith(claim)
    # The verified quantities, as in the document: epsilon, noise, sensitivity and rounds.
    written = json.loads(of_a_run())["parts"]
    for i, part in enumerate(written):
        noise, moved = part["is"]["noise"], part["is"]["sensitivity"]["amount"]
        epsilon = part["claims"][0]["epsilon"]
        assert lines[1 + i] == (
            f"parts[{i}]: holds: epsilon <= {epsilon} at delta 1/1000000, of 1 round of "
            f"discrete-laplace:scale={noise['scale']} (sensitivity {moved}): recomputed"
        )
    assert lines[-1] == "every claim holds"
    # Assumptions are printed first and last.
    for options, first in (
        ({"trust": "shuffled-pure"}, "parts[0]: assumed: "),
        ({"simulated": True}, "noise: assumed: "),
    ):
        answer = command(of_a_run(**options))
        assert (answer.code, answer.out.startswith(first)) == (0, True)
        assert answer.out.splitlines()[-1] == "every claim holds under the stated assumptions"


def test_a_changed_run_does_not_hold(command: Command, tmp_path: Path) -> None:
    edited = json.loads(of_a_run(trust="renyi", most_steps=1))
    edited["claims"][0]["epsilon"] = "0.1"
    answer = command(json.dumps({**edited, "digest": digest_of(edited)}))
    assert answer.code == 1
    lines = answer.out.splitlines()
    assert lines[0] == "claims[0] (epsilon): fails: is less than the epsilon of a part"
    assert lines[-1] == "DOES NOT HOLD"
    found = command(json.dumps(edited), "--json")
    assert (found.code, found.json["holds"]) == (1, False)
    assert {each["status"] for each in found.json["findings"]} >= {"fails", "unchecked"}
    (tmp_path / "good.json").write_text(of_one_gaussian())
    skellam = PrivacyCurve(noise=Skellam(variance=9), sensitivity=1)
    (tmp_path / "rough.json").write_text(certify(skellam, orders=["3/2"]).text())
    both = command(json.dumps(edited), tmp_path / "good.json", tmp_path / "rough.json")
    changed, good, rough = [line.split(": ")[1] for line in both.out.splitlines()]
    assert (changed, good) == ("DOES NOT HOLD", "every claim holds")
    assert rough.startswith("every claim holds; checked in part by an estimate, which is not a")
    assert both.code == 1
    assert command(json.dumps(edited), tmp_path / "good.json", "--json").code == 2


def of_many_claims() -> str:
    claims = [enclosed("delta", str(3 + Fraction(i, 7)), "0.001", "0.002") for i in range(64)]
    return certificate([noise("skellam", 1, 500, variance="100")], claims)


@pytest.mark.parametrize("text", [of_many_claims(), of_a_run()], ids=["ordinary", "run"])
def test_a_claim_that_is_not_decided_in_time_does_not_hold(command: Command, text: str) -> None:
    clear()
    start = time.process_time()
    answer = command(text, "--deadline", "1/1000")
    assert time.process_time() - start < 5
    assert answer.code == 1
    lines = answer.out.splitlines()
    assert any(each.endswith("not decided in time: not decided in 0.001 seconds") for each in lines)
    assert lines[-1].startswith("NOT DECIDED IN TIME")
    found = command(text, "--deadline", "1/1000", "--json")
    assert (found.code, found.json["holds"]) == (1, False)
    assert "not decided in time" in {each["status"] for each in found.json["findings"]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "is not a certificate: it is not JSON"),
        (b"[" * 100_000, "is not a certificate: it is not JSON"),
        (b'{"schema": 5}', 'is not a certificate: it has no "schema"'),
        (b'{"schema": "another/1"}', "no installed package reads certificates of the schema"),
        (b'{"schema": "dpcore-bandit/2"}', "is a result ('dpcore-bandit/2'), not a certificate: u"),
        (b'{"schema": "dpcore-certificate/9"}', "this version of dpcore reads dpcore-certificate/"),
    ],
    ids=range(6),
)
def test_a_file_that_is_not_a_certificate_is_refused(
    command: Command, text: bytes, reason: str
) -> None:
    for options in ((), ("--json",)):
        answer = command(text, *options)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith("error: FILE = ")
        assert reason in answer.err
        assert ("certificate-*.json" in answer.err) is (b"bandit" in text)


ALIEN = b'{"schema": "alien/1"}'


def sound(text: bytes) -> Verdict:
    return Verdict(findings=(Finding(where=f"{len(text)}", status=Status.HOLDS, reason="read"),))


def rude(text: bytes) -> Verdict:
    raise KeyError(f"{len(text)} bytes\n of it")


def reading(monkeypatch: pytest.MonkeyPatch, schema: str, *values: str) -> None:
    points = [EntryPoint(schema, value, certificate_command.GROUP) for value in values]

    def found(*, group: str, name: str) -> list[EntryPoint]:
        return points if (group, name) == (certificate_command.GROUP, schema) else []

    monkeypatch.setattr(certificate_command, "entry_points", found)


def test_an_installed_package_reads_its_own_schema_only(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading(monkeypatch, "alien/1", f"{__name__}:sound")
    answer = command(ALIEN)
    assert answer.code == 0
    assert answer.out == "21: holds: read\ndecided by the integer kernel\nevery claim holds\n"
    reading(monkeypatch, "dpcore-certificate/1", f"{__name__}:sound")
    text = of_one_gaussian().encode()
    assert certificate_command.verdict_of(text) == verify(text)
    changed = command(of_one_gaussian().replace("0.1892073", "0.1892072"))
    assert changed.out.splitlines()[-1] == "DOES NOT HOLD"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (
            ("a.module:read", "b.module:read"),
            "has 2 readers (a.module:read of an unnamed package, ",
        ),
        (("no_such_module:read",), "cannot be imported: ModuleNotFoundError"),
        ((f"{__name__}:ALIEN",), "is not callable"),
        (("builtins:bytes",), "returned bytes instead of a Verdict"),
        ((f"{__name__}:rude",), "raised KeyError: '21 bytes"),
    ],
)
def test_a_reader_that_fails_is_named(
    command: Command, monkeypatch: pytest.MonkeyPatch, values: tuple[str, ...], reason: str
) -> None:
    reading(monkeypatch, "alien/1", *values)
    answer = command(ALIEN)
    assert answer.code == 2
    assert answer.err.startswith("error: schema = alien/1: ")
    assert reason in answer.err
    assert all(value in answer.err for value in values)
    assert "defect" not in answer.err
    assert answer.err.count("\n") == 1


def test_long_and_endless_texts_are_refused_at_once(
    command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    most = certificate_command.MOST_TEXT
    reason = f"certificate: fails: must be at most {most} bytes\n"
    for text in (b"\0", of_one_gaussian().encode() + b" ", ALIEN):
        answer = command(text.ljust(most + 1))
        assert (answer.code, answer.out.startswith(reason)) == (1, True)
        assert "decided" not in answer.out
    if Path("/dev/zero").exists():
        with Path("/dev/zero").open() as endless:
            monkeypatch.setattr("sys.stdin", endless)
            assert typed(capsys, "verify", "-").out.startswith(reason)
        by_name = typed(capsys, "verify", "/dev/zero")
        assert (by_name.code, by_name.out) == (2, "")
        assert "FILE = /dev/zero: is not a regular file" in by_name.err
    for seconds in ("0", "nan", "1e7"):
        answer = command(of_one_gaussian(), "--deadline", seconds)
        assert (answer.code, answer.out, "--deadline" in answer.err) == (2, "", True)


def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the certificate was derived")

    monkeypatch.setattr("accounting.certificates.certify.certify", never)
    words = ("certify", "--noise", "gaussian:sigma=9", "-o")
    for path in (Path("-"), tmp_path, tmp_path / "no" / "c.json"):
        refused = typed(capsys, *words, path)
        assert (refused.code, "--output" in refused.err) == (2, True)
    assert "the certificate was derived" in typed(capsys, *words, tmp_path / "c.json").err


def test_the_basis_of_a_decision_is_named_only_if_a_claim_was_decided(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = json.dumps({"schema": "dpcore-certificate/1"})
    assert command(empty).out.splitlines()[1:] == ["DOES NOT HOLD"]
    assert json.loads(command(empty, "--json").out)["proof"] is None
    changed = command(of_one_gaussian().replace("sha256:", "sha256:0"))
    assert changed.out.splitlines()[-2:] == ["decided by the integer kernel", "DOES NOT HOLD"]
    late = command(of_one_gaussian(), "--deadline", "1e-9")
    assert "not decided in time" in late.out
    assert "integer kernel" not in late.out
    # A false claim beside an undecided one is reported.
    findings = [
        Finding(where="x", status=status, reason="so")
        for status in (Status.UNDECIDED, Status.FAILS)
    ]
    found = Verdict(findings=tuple(findings))
    monkeypatch.setattr(verify_certificate, "verify", lambda text: found)
    assert command(of_one_gaussian()).out.splitlines()[-1] == "DOES NOT HOLD"


def test_a_shuffle_is_not_said_to_be_decided_by_the_kernel(command: Command) -> None:
    private = PureShufflePrivatizer(epsilon=4, failure="1/10")
    run = play(
        BatchedElimination(privatizer=private),
        Bernoulli(means=(0.9, 0.1)),
        horizon=100,
        world=np.random.default_rng(1),
    )
    text = certificate_of(run, deltas=["1e-6"]).text()
    answer = command(text)
    assert "derived again by the same engine" in answer.out
    assert "by the software that issued it, not by the integer kernel\n" in answer.out
    assert json.loads(command(text, "--json").out)["proof"] == "engine"
    unchecked = command(of_a_run(trust="renyi", most_steps=0))
    assert (unchecked.code, "decided" in unchecked.out) == (1, False)
