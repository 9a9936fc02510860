r"""The command ``dpcore audit fit``: does a sampler draw from its law?"""

from __future__ import annotations

from functools import partial
from typing import Any

from audit.cli.options import SpecOptions, seed_of, spec_of, with_spec
from audit.cli.output import leave_isolated
from audit.formats.junit_and_sarif import format_of
from audit.formats.result import Result
from dpcore.cli.options import AsFormat, AsJson, Format, argument, named, option, read_law


@with_spec("runs", "sequential", "alpha", "seed", "timeout", "deadline")
def fit_command(
    options: SpecOptions,
    target: str = argument(
        "TARGET",
        "module:callable or file.py:callable, called as f(n, rng), f(rng) or f(); noise "
        "such as discrete-laplace:scale=1; 'exec:./program args'; a name of the catalogue.",
    ),
    *,
    law: str = option("NOISE", "The claimed law, e.g. discrete-laplace:scale=1.", default=...),
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Test a sampler: does TARGET draw from the law?

    Example: dpcore audit fit noise.py:draw --law discrete-gaussian:sigma_squared=4

    Exit code: 0 not refuted, 1 refuted, 2 usage, 3 the target failed.
    """
    printed, spec = format_of(form, as_json=as_json), spec_of(options)
    noise, seed = read_law("--law", law), seed_of(spec)

    def audited(sampler: Any) -> Result:
        from audit.fit.fit import fit

        return fit(
            sampler,
            noise,
            runs=spec.planned_runs,
            alpha=spec.alpha,
            seed=seed,
            sequential=spec.sequential,
            timeout=spec.timeout,
            deadline=spec.deadline,
            target=target,
        )

    naming = named(target="TARGET", sampler="TARGET")
    leave_isolated(target, spec, partial(_sampler, target), audited, printed, naming)


def _sampler(spelling: str) -> Any:
    from audit.outputs.call_guard import load
    from audit.targets.target_syntax import read_target
    from dpcore.parse_noise import LAWS

    path, _, attribute = spelling.rpartition(":")
    if not (path and attribute) or spelling.partition(":")[0] in {"exec", "protocol", *LAWS}:
        return read_target(spelling)
    # A callable is used directly: a sampler is called without a dataset.
    return load(spelling)
