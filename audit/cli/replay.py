r"""The command ``dpcore audit replay``: both datasets with the same random draws."""

from __future__ import annotations

from typing import Any, Final

from audit.cli.options import SpecOptions, seed_of, spec_of, with_spec
from audit.cli.output import leave_isolated
from audit.formats.junit_and_sarif import format_of
from audit.formats.result import Result
from dpcore.cli.options import AsFormat, AsJson, Format, argument, named

_REPLAYED: Final = (
    "pair", "sensitivity", "norm", "strict", "tapes", "changes", "seed", "timeout", "deadline",
    "allow_constant",
)  # fmt: skip


@with_spec(*_REPLAYED)
def replay_command(
    options: SpecOptions,
    target: str = argument(
        "TARGET",
        "module:callable, file.py:callable, a noise distribution, a protocol, or a name that "
        "dpcore audit catalogue lists.",
    ),
    *,
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Replay TARGET on both datasets with the same random draws, and with single draws at
    extremes.

    Example: dpcore audit replay clipped-to-two --sensitivity 1

    Exit code: 0 no error found, 1 refuted or a fault found, 2 usage, 3 the target failed or cannot
    be replayed, 4 nothing is drawn and both outputs are equal.
    """
    printed, spec = format_of(form, as_json=as_json), spec_of(options)
    fields = {name: getattr(spec, name) for name in _REPLAYED} | {"seed": seed_of(spec)}

    def load() -> Any:
        from audit.targets.target_syntax import read_target

        return read_target(target, seeded=True)

    def audited(subject: Any) -> Result:
        from audit.replay.replay_both import replay
        from audit.targets.check_neighbours import pairs_of

        return replay(subject, **fields | {"pair": pairs_of(subject, spec.pair)[0]})

    leave_isolated(target, spec, load, audited, printed, named("pair", target="TARGET"))
