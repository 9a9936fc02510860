r"""The report of a run over the corpus: a frozen record whose fields say what they mean.

``docs/schemas/dpcore-corpus-1.json`` is the schema that follows from it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from audit.corpus.entry import Entry, Side
from audit.corpus.render import number, true_words
from audit.wording.formats import Case, Outcome
from audit.wording.result import Result, Told, computed, fact
from dpcore.command.table import aligned

if TYPE_CHECKING:
    from audit.wording.html import Section

__all__ = ["Answer", "CorpusReport", "Judged"]

_WIDTH: Final = 100
_MISJUDGED: Final = 1
_MISSING: Final = 3
_HEADINGS: Final = ("name", "package", "claim", "true", "lower", "failure", "twin", "seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    r"""The audit of a failure or of its twin.

    ``verdict`` is None where there was no audit, for the reason of ``error``; ``missing`` says that
    it was the environment. ``right`` is whether it was judged as it should be.
    """

    side: Side
    verdict: str | None = fact("null where there was no audit", default=None)
    right: bool = fact("whether it was judged as it should be", default=False)
    epsilon_lower: float | None = fact('"inf" where no epsilon holds', default=None)
    runs: int = fact("tested", default=0)
    seconds: float = fact("it took", write=lambda value: round(value, 2), default=0.0)
    error: str | None = fact("why there was no audit", default=None)
    missing: bool = fact("whether the environment could not be made", default=False)

    @property
    @computed("what was installed", before="verdict")
    def requires(self) -> tuple[str, ...]:
        r"""What was installed."""
        return self.side.requires

    @property
    @computed("what was tested", before="verdict")
    def claim(self) -> str:
        r"""What was tested."""
        return self.side.claim

    @property
    def words(self) -> str:
        r"""The verdict, in capitals where it is not as it should be."""
        if self.missing:
            return "not installed"
        if self.verdict is None:
            return "failed"
        word = self.verdict.replace("_", " ")
        return word if self.right else word.upper()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    r"""An entry and the results of its sides."""

    entry: Entry
    broken: Answer
    twin: Answer | None

    @property
    def results(self) -> dict[str, Answer]:
        r"""Of the failure and, where there is one, of its twin."""
        return {"failure": self.broken} | ({} if self.twin is None else {"twin": self.twin})

    @property
    def right(self) -> bool:
        r"""Whether every side was judged as it should be."""
        return all(result.right for result in self.results.values())

    @property
    def missing(self) -> bool:
        r"""Whether an environment could not be made."""
        return any(result.missing for result in self.results.values())

    def to_json(self) -> dict[str, Any]:
        r"""What the file of the entry says of it, and the results."""
        from audit.wording.result import plain

        names = ("name", "package", "version", "failure", "source")
        return {
            **{name: getattr(self.entry, name) for name in names},
            "true": dict([self.entry.true]),
            "right": self.right,
            "broken": plain(self.broken),
            "twin": plain(self.twin),
        }

    def cells(self) -> tuple[str, ...]:
        r"""Its line of the table."""
        lower = self.broken.epsilon_lower
        return (
            self.entry.name,
            f"{self.entry.package} {self.entry.version}",
            self.broken.claim,
            true_words(self.entry),
            "" if lower is None else number(lower),
            self.broken.words,
            "" if self.twin is None else self.twin.words,
            f"{sum(result.seconds for result in self.results.values()):.1f}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusReport(Result):
    r"""A run over entries of the corpus."""

    SCHEMA: ClassVar[str] = "dpcore-corpus/1"

    rows: tuple[Judged, ...] = fact(
        '[{"name", "package", "version", "failure", "source", "true", "right", "broken", "twin"}]; '
        'the last two are null or {"requires", "claim", "verdict", "right", "epsilon_lower", '
        '"runs", "seconds", "error", "missing"}'
    )
    versions: dict[str, str] = fact('{"dpcore", "python", "numpy"}', default_factory=dict)

    @property
    @computed("whether every side of every entry was judged as it should be", before="rows")
    def passed(self) -> bool:
        r"""Whether every side of every entry was judged as it should be."""
        return all(row.right for row in self.rows)

    @property
    def subject(self) -> str:
        return "the corpus of published packages"

    @property
    def exit_code(self) -> int:
        r"""0 all judged as they should be, 1 otherwise, 3 an environment failed."""
        if any(not row.right and not row.missing for row in self.rows):
            return _MISJUDGED
        return _MISSING if any(row.missing for row in self.rows) else 0

    def told(self) -> Told:
        right = sum(row.right for row in self.rows)
        missing = sum(row.missing for row in self.rows)
        about = f"judged as they should be: {right} of {len(self.rows)}"
        if missing:
            about += f"; {missing} could not be installed"
        return Told(verdict="PASSED" if self.passed else "FAILED", about=about)

    def cases(self) -> Iterator[Case]:
        r"""Each failure and each twin."""
        for row in self.rows:
            for role, result in row.results.items():
                answered: Outcome = "passed" if result.right else "failed"
                yield Case(
                    target=f"{row.entry.package} {row.entry.version}",
                    name=f"{row.entry.name}: {role}",
                    rule="dpcore-corpus",
                    outcome="error" if result.verdict is None else answered,
                    message=result.error or f"{result.words} on {row.broken.claim}",
                    seconds=result.seconds,
                )

    def sections(self) -> Iterator[Section]:
        from audit.wording.html import Section

        yield Section(title="Entries", columns=_HEADINGS, rows=[row.cells() for row in self.rows])

    def __str__(self) -> str:
        lines = aligned([_HEADINGS, *(row.cells() for row in self.rows)], right=(4, 7))
        for row in self.rows:
            for role, result in row.results.items():
                if result.error is not None:
                    words = f"{row.entry.name} ({role}): {result.error}"
                    lines += textwrap.wrap(words, _WIDTH, break_on_hyphens=False)
        return "\n".join([*lines, self.told().about])
