r"""Proof pages, bound to the code they prove.

A page under docs/proofs/ opens with a block that names code objects, each with a hash of its
normalised source: the syntax tree without docstrings and comments. Editing the code turns the
test red until someone has read the proof again and run

    python -m tests.house.proofs --update docs/proofs/rng.md

An object is ``package.module:Class.method``, ``package.module:CONSTANT`` or a whole module. The
source is read, never imported, so a hash depends on the text of one definition and nothing else.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = "docs/proofs"

# Modules whose claims rest on an argument, not on a test: each needs a page that names it.
NEED_A_PROOF = (
    "dpcore.sampling.rng",
    "dpcore.sampling.coins",
    "dpcore.numbers.enclosure",
    "dpcore.sampling.inversion",
    "dpcore.sampling.reservoir",
    "dpcore.sampling.rejection",
    "dpcore.analysis.theta",
    "dpcore.analysis.coin_sums",
    "dpcore.numbers.floating",
    "dpcore.laws.discrete_laplace",
    "dpcore.laws.discrete_gaussian",
    "dpcore.laws.discrete_gaussian_sum",
    "dpcore.sampling.ripple",
    "dpcore.laws.skellam",
    "dpcore.sampling.tables",
    "dpcore.laws.count_noise",
    "dpcore.laws.poisson",
    "dpcore.laws.binomial",
    "dpcore.sampling.stirling",
    "dpcore.laws.polya",
    "dpcore.laws.polya_difference",
    "dpcore.analysis.polya_integral",
    "dpcore.analysis.integration",
    "dpcore.laws.polya_jumps",
    "dpcore.analysis.runs",
    "dpcore.protocols.encoding",
    "dpcore.protocols.sums",
    "dpcore.laws.sums",
    "dpcore.protocols.shuffled_bits",
    "dpcore.protocols.pure_shuffle",
    "dpcore.sampling.permutation",
    "dpcore.protocols.aggregation",
    "dpcore.protocols.run",
    "dpcore.protocols.sizing",
    "dpcore.continual.stream",
    "dpcore.continual.blocks",
    "dpcore.continual.square_root",
    "dpcore.masked.shamir",
    "dpcore.masked.masks",
    "dpcore.masked.keys",
    "dpcore.masked.messages",
    "dpcore.masked.neighbourhood",
    "dpcore.masked.sizing",
    "dpcore.masked.round",
    "dpcore.masked.user",
    "dpcore.masked.server",
    "dpcore.masked.device",
    "dpcore.masked.aggregation",
    "accounting.release.curve",
    "accounting.pairs.monotone",
    "accounting.laws.skellam",
    "accounting.laws.gaussian_sum",
    "accounting.pairs.symmetric_sum",
    "accounting.laws.one_sided",
    "accounting.laws.polya",
    "accounting.pairs.log_convex",
    "accounting.protocols.box",
    "accounting.protocols.shuffled_bits",
    "accounting.protocols.pure_shuffle",
    "accounting.theorems.real_gaussian",
    "accounting.pairs.lattice",
    "accounting.pairs.losses",
    "accounting.pairs.listing",
    "accounting.laws.counts",
    "accounting.fourier.gaussian_factor",
    "accounting.fourier.integral",
    "accounting.fourier.inverse",
    "accounting.fourier.finite_sum",
    "accounting.fourier.discs",
    "accounting.fourier.factor",
    "accounting.release.dominating",
    "accounting.release.sampled_pair",
    "accounting.release.subsampling",
    "accounting.release.real_curve",
    "accounting.fourier.normal_loss",
    "accounting.pairs.enclose",
    "accounting.fourier.discrete_factor",
    "accounting.fourier.transform",
    "accounting.loss.allocation",
    "accounting.loss.cells",
    "accounting.loss.density",
    "accounting.loss.listing",
    "accounting.loss.normal_tail",
    "accounting.loss.real_pair",
    "accounting.loss.renyi",
    "accounting.fourier.real_loss",
    "accounting.release.replaced",
    "accounting.totals.rounds",
    "accounting.totals.total",
    "accounting.totals.enumeration",
    "accounting.totals.compose",
    "accounting.budget.calibrate",
    "accounting.budget.promise",
    "accounting.budget.largest",
    "accounting.budget.returning",
    "accounting.theorems.convert",
    "accounting.claims.guarantee",
    "accounting.claims.orders",
    "accounting.claims.claim",
    "accounting.theorems.filter",
    "accounting.theorems.odometer",
    "accounting.interop.distributions",
    "accounting.interop.reading",
    "bandits.papers.statement",
    "accounting.certificates.stated",
    "accounting.checker.laws.masses",
    "accounting.checker.laws.losses",
    "accounting.checker.sums.direct",
    "accounting.checker.sums.lattice",
    "accounting.checker.sums.tilt",
    "accounting.checker.sums.integral",
    "accounting.checker.sums.totals",
    "accounting.checker.rounds",
    "accounting.checker.verdict",
    "accounting.release.binned",
    "accounting.ledger.book",
    "accounting.ledger.check",
    "accounting.ledger.copies",
    "accounting.ledger.database.forks",
    "accounting.ledger.history",
    "accounting.ledger.ledger",
    "accounting.ledger.names",
    "accounting.ledger.database.place",
    "accounting.ledger.request",
    "accounting.ledger.database.store",
    "accounting.ledger.tables",
    "accounting.ledger.turns",
    "audit.fit.fit",
    "audit.fit.cells",
    "audit.fit.fixed",
    "audit.fit.sequential",
    "audit.replay.tape",
    "audit.replay.session",
    "audit.replay.doors",
    "audit.replay.replay",
    "audit.replay.evidence",
    "audit.exact.divergence",
    "audit.exact.direction",
    "audit.evidence.fixed",
    "audit.evidence.anytime",
    "audit.claims.curve_claim",
    "audit.evidence.family",
    "audit.evidence.multiplicity",
    "audit.evidence.one_run",
    "bandits.radius.certified",
    "dpcore.analysis.laplace_sums",
    "bandits.radius.radius",
    "bandits.policies.setting",
    "bandits.worlds.environment",
    "bandits.policies.shuffle_elimination",
    "bandits.play",
    "bandits.privatizers.protocols",
    "bandits.privatizers.promise",
    "bandits.privatizers.visits",
    "bandits.policies.returning",
    "bandits.privatizers.returning",
    "bandits.certificates.certificate",
    "bandits.certificates.form",
    "bandits.certificates.recheck",
    "accounting.checker.worst",
    "bandits.audited.target",
    "bandits.audited.server_view",
    "bandits.audited.devices",
    "bandits.audited.linear_view",
    "bandits.policies.linear_design",
    "bandits.policies.linear_radius",
    "bandits.policies.phased_elimination",
    "bandits.privatizers.averages",
)

_HASH_LENGTH = 16
_BLOCK = re.compile(r"\A---\nproves:\n(?P<lines>(?:  - .*\n)+)---\n")
_LINE = re.compile(r"  - (?P<name>[\w.]+(?::[\w.]+)?)(?: (?P<hash>[0-9a-f]+))?\n")
_HAS_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class ProofError(Exception):
    """A page that does not say what it proves, or names code that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One line of a page's block: an object and the hash the page was read with, if any."""

    name: str
    read_with: str | None


def bindings(page: Path) -> list[Bound]:
    """What a page says it proves."""
    block = _BLOCK.match(page.read_text(encoding="utf-8"))
    if block is None:
        raise ProofError(f"{page.name}: must open with '---', 'proves:', '  - object hash', '---'")
    found = []
    for line in block["lines"].splitlines(keepends=True):
        parsed = _LINE.fullmatch(line)
        if parsed is None:
            raise ProofError(f"{page.name}: not 'package.module:object hash': {line.strip()}")
        found.append(Bound(name=parsed["name"], read_with=parsed["hash"]))
    return found


def code_hash(name: str, root: Path = ROOT) -> str:
    r"""The hash of the object's normalised source.

    >>> len(code_hash("tests.house.proofs:code_hash"))
    16
    >>> code_hash("tests.house.proofs:absent")
    Traceback (most recent call last):
    ...
    tests.house.proofs.ProofError: tests.house.proofs defines no absent
    """
    module, _, path = name.partition(":")
    stem = root.joinpath(*module.split("."))
    source = next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.is_file()), None)
    if source is None:
        raise ProofError(f"{module}: no such module")
    scope: list[ast.AST] = [ast.parse(source.read_text(encoding="utf-8"))]
    for part in path.split(".") if path else []:
        scope = [node for outer in scope for node in _body(outer) if part in _defines(node)]
        if not scope:
            raise ProofError(f"{module} defines no {path}")
    # Overloads and a property with its setter are several definitions of one name: all are hashed.
    normal = "\n".join(_normal(node) for node in scope)
    return hashlib.sha256(normal.encode()).hexdigest()[:_HASH_LENGTH]


def _body(node: ast.AST) -> list[ast.stmt]:
    return node.body if isinstance(node, ast.Module | ast.ClassDef) else []


def _defines(node: ast.AST) -> set[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return {node.name}
        case ast.Assign():
            return {target.id for target in node.targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()


def _normal(node: object) -> str:
    # ast.dump would do, but what it leaves out differs between versions of Python. Here a field
    # that is empty is left out always, so that a field added to the grammar changes no hash.
    if isinstance(node, list):
        return "[" + ",".join(_normal(item) for item in node) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = []
    for field, value in ast.iter_fields(node):
        kept = value
        if (
            field == "body"
            and isinstance(node, _HAS_DOCSTRING)
            and ast.get_docstring(node, False) is not None
        ):
            kept = value[1:]
        literal = isinstance(node, ast.Constant) and field == "value"
        if literal or (kept is not None and kept != []):
            fields.append(f"{field}={_normal(kept)}")
    return f"{type(node).__name__}({','.join(fields)})"


def complaints(page: Path, root: Path = ROOT) -> list[str]:
    """Why this page does not bind the code as it is now; empty when it does."""
    try:
        bound = bindings(page)
    except ProofError as error:
        return [str(error)]
    found = []
    for line in bound:
        try:
            now = code_hash(line.name, root)
        except ProofError as error:
            found.append(f"{page.name}: {error}")
            continue
        if line.read_with != now:
            found.append(
                f"{page.name}: {line.name} is {now}, the page was read with {line.read_with}: "
                f"read the proof against the code, then "
                f"python -m tests.house.proofs --update {PAGES}/{page.name}"
            )
    return found


def unproven(root: Path = ROOT, needed: tuple[str, ...] = NEED_A_PROOF) -> list[str]:
    """The modules on the list that no page names."""
    named: set[str] = set()
    for page in pages(root):
        try:
            named |= {line.name.partition(":")[0] for line in bindings(page)}
        except ProofError:
            continue  # `complaints` says so
    return [module for module in needed if module not in named]


def pages(root: Path = ROOT) -> list[Path]:
    """Every proof page: all of the folder but its README."""
    return sorted(p for p in (root / PAGES).glob("*.md") if p.name != "README.md")


def update(page: Path, root: Path = ROOT) -> list[str]:
    """Write the hashes of today into the page; what changed, a line each."""
    changed = []
    lines = []
    for line in bindings(page):
        now = code_hash(line.name, root)
        lines.append(f"  - {line.name} {now}\n")
        if now != line.read_with:
            changed.append(f"{line.name}: {line.read_with} -> {now}")
    text = page.read_text(encoding="utf-8")
    block = "---\nproves:\n" + "".join(lines) + "---\n"
    page.write_text(_BLOCK.sub(lambda _: block, text, count=1), encoding="utf-8")
    return changed


def main(arguments: list[str] | None = None) -> int:
    """Check every page, or update the ones named."""
    parser = argparse.ArgumentParser(prog="python -m tests.house.proofs", description=__doc__)
    parser.add_argument("--update", nargs="+", type=Path, metavar="PAGE", default=[])
    chosen = parser.parse_args(arguments)
    try:
        for page in chosen.update:
            for line in update(page):
                print(line)
    except (ProofError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    found = [complaint for page in pages() for complaint in complaints(page)]
    found += [f"{module}: no page proves it" for module in unproven()]
    print("\n".join(found) if found else "every page binds the code as it is")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
