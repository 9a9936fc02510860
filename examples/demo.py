r"""A demonstration of audits: one claim is proven, and two false claims are refuted with a witness.

Each line after ``$`` is a command that you can run yourself; this script runs the same command with
``--json`` and prints the main part of its report.
"""

import contextlib
import io
import json
import sys
import textwrap

from dpcore.cli.app import run

EMPTY_ROOM = ["--claim", "epsilon=1", "--relation", "add-remove", "--pair", "[]", '["ada"]']

STORY = (
    (
        "Exact noise. Its distribution is known, so the claim is proven, not tested by sampling.",
        ["discrete-laplace:scale=1", "--claim", "epsilon=1", "--pair", "0", "1"],
    ),
    (
        "A counter that adds half the noise it should. Only its outputs are seen.",
        ["half-scale", "--claim", "epsilon=1", "-n", "20000", "--seed", "7"],
    ),
    (
        "A counter without noise if there are no visitors. The audit stops at sufficient evidence.",
        [
            "examples/broken_counter.py:visitors",
            *EMPTY_ROOM,
            "--sequential",
            "--max-n",
            "20000",
            "--seed",
            "7",
        ],
    ),
    (
        "The same counter, always with noise.",
        [
            "examples/broken_counter.py:visitors_protected",
            *EMPTY_ROOM,
            "-n",
            "20000",
            "--seed",
            "7",
        ],
    ),
)


def audit(arguments: list[str]) -> dict[str, object]:
    r"""The report that ``dpcore audit --json`` prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = run(["audit", *arguments, "--json"])
    if code not in (0, 1):
        sys.exit(code)
    report: dict[str, object] = json.loads(printed.getvalue())
    return report


def quoted(argument: str) -> str:
    return f"'{argument}'" if set(argument) & set('[]" ') else argument


def finding(report: dict[str, object]) -> str:
    r"""The verdict and its evidence in one sentence."""
    match report:
        case {"verdict": "proven", "exact": {"epsilon": [lower, upper]}}:
            exactly = f"{lower:g}" if lower == upper else f"between {lower} and {upper}"
            return f"PROVEN: epsilon is {exactly}, by interval arithmetic on the exact law."
        case {"verdict": "refuted", "witness": dict(witness)}:
            return (
                f"REFUTED: epsilon >= {report['epsilon_lower']:.2f} with 99.9% confidence after "
                f"{report['runs']} runs. Witness: {witness['event']} came out in "
                f"{witness['inside_a']} of {witness['runs_a']} runs on A and in "
                f"{witness['inside_b']} of {witness['runs_b']} on B."
            )
        case _:
            return (
                f"NOT REFUTED in {report['runs']} runs, which would have detected any output of "
                f"probability {report['resolution']:.1g} that reveals the dataset."
            )


def main() -> None:
    for number, (sentence, arguments) in enumerate(STORY, 1):
        report = audit(arguments)
        print(f"{number}. {sentence}")
        print(f"   $ dpcore audit {' '.join(map(quoted, arguments))}")
        print(textwrap.fill(finding(report), 96, initial_indent="   ", subsequent_indent="   "))
        print()
    print('A claim is about two neighbouring datasets A and B, here 0 and 1, or [] and ["ada"].')
    print("Next: dpcore audit --help, README.md, docs/user_guide.md")


if __name__ == "__main__":
    main()
