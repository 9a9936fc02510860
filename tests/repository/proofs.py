r"""Check that proof pages are bound to the code they prove.

A page under docs/proofs/ opens with a block that names functions and classes, each with a hash of
its normalised source, the syntax tree without docstrings and comments, and of the definitions it
uses in its module. After a change of that code the test fails; review the proof again, then run

    python -m tests.repository.proofs --update docs/proofs/rng.md

An object is ``package.module:function``, ``package.module:Class.method``, a whole class or a
constant. Its functions and constants of the same module are followed by their names; other
definitions of the module may change freely. The source is read, never imported.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = "docs/proofs"

# Every bound and sample depends on these functions: each must be bound by a page.
NEED_A_PROOF = (
    "dpcore.sampling.rng:Rng", "dpcore.sampling.bernoulli:bernoulli_exp",
    "dpcore.sampling.inversion:InversionTable.fill", "dpcore.sampling.inversion:table_of_masses",
    "dpcore.sampling.step_function_rejection:Centred._fill", "dpcore.numbers.enclosure:narrow",
    "dpcore.numbers.arrays:exp_neg", "dpcore.analysis.contour_sums:upper_tail",
    "dpcore.protocols.fixed_point_encoding:FixedPoint", "dpcore.secure_aggregation.server:finish",
    "accounting.pld.finite_pld:Listing.above", "accounting.pld.finite_pld:Listing.below",
    "accounting.composition.compose:Composition.epsilon",
    "accounting.ledger.charge_or_refuse:charged",
    "audit.statistical_tests.prequential_fixed_runs_test:Evidence",
    "bandits.elimination_radii:certified_width",
)  # fmt: skip

_HASH_LENGTH = 16
_BLOCK = re.compile(r"\A---\nproves:\n(?P<lines>(?:  - .*\n)+)---\n")
_LINE = re.compile(r"  - (?P<name>[\w.]+:[\w.]+)(?: (?P<hash>[0-9a-f]+))?\n")
_HAS_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class ProofError(Exception):
    """A page has no valid block of objects, or names code that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One line of a page's block: an object and its hash at the last review, if any."""

    name: str
    read_with: str | None


def bindings(page: Path) -> list[Bound]:
    """Return the objects that a page names."""
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
    r"""Return the hash of an object and of the definitions it uses in its module.

    >>> len(code_hash("tests.repository.proofs:code_hash"))
    16
    >>> code_hash("tests.repository.proofs:absent")
    Traceback (most recent call last):
    ...
    tests.repository.proofs.ProofError: tests.repository.proofs defines no absent
    """
    module, _, path = name.partition(":")
    stem = root.joinpath(*module.split("."))
    source = next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.is_file()), None)
    if source is None:
        raise ProofError(f"{module}: no such module")
    tree = _parsed(source.read_text(encoding="utf-8"))
    found = _leaned_on(path, tree)
    if not found[path]:
        raise ProofError(f"{module} defines no {path}")
    # Overloads and a property with its setter are several definitions of one name: all are hashed.
    nodes = found.pop(path) + [node for name in sorted(found) for node in found[name]]
    normal = "\n".join(map(_normal_definition, nodes))
    return hashlib.sha256(normal.encode()).hexdigest()[:_HASH_LENGTH]


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _leaned_on(path: str, tree: ast.Module) -> dict[str, list[ast.AST]]:
    """Return the definitions of a name and of everything that it uses in its module.

    Functions, constants and private classes are followed by their names, and ``self.name`` to the
    class and to its bases in the module. Public classes are not followed: a page names them itself.
    """
    found: dict[str, list[ast.AST]] = {}
    waiting = [path]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = definitions = _definitions(name, tree)
        owner = name.rpartition(".")[0]
        for used in {used for node in definitions for used in _names(node)}:
            public = used[:1].isupper() and not used.isupper()
            if used.startswith("self."):
                waiting += _members(owner, used.removeprefix("self."), tree) if owner else []
            elif not public and _definitions(used, tree):
                waiting.append(used)
    return found


@cache
def _definitions(path: str, tree: ast.Module) -> list[ast.AST]:
    scope: list[ast.AST] = [tree]
    for part in path.split("."):
        scope = [node for outer in scope for node in _defined_in(outer).get(part, ())]
    return scope


def _members(owner: str, name: str, tree: ast.Module) -> list[str]:
    """Return where a class, or the first of its bases in the module, defines a name."""
    for node in _definitions(owner, tree):
        if isinstance(node, ast.ClassDef):
            if name in _defined_in(node):
                return [f"{owner}.{name}"]
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            return [found for base in bases for found in _members(base, name, tree)][:1]
    return []


@cache
def _names(node: ast.AST) -> set[str]:
    """Return the names that a definition uses, outside of annotations; its members as self.name."""
    found = set()
    waiting = [node]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Name(id=name):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                found.add(f"self.{name}")
        for field, value in ast.iter_fields(node):
            if field not in ("annotation", "returns"):
                inner = value if isinstance(value, list) else [value]
                waiting += [item for item in inner if isinstance(item, ast.AST)]
    return found


@cache
def _defined_in(node: ast.AST) -> dict[str, list[ast.AST]]:
    found: dict[str, list[ast.AST]] = {}
    for inner in node.body if isinstance(node, ast.Module | ast.ClassDef) else []:
        for name in _defines(inner):
            found.setdefault(name, []).append(inner)
    return found


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
    # Not `ast.dump`: its omitted fields differ between versions of Python. Here an empty field is
    # always omitted, so that a field added to the grammar changes no hash.
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


_normal_definition = cache(_normal)


def complaints(page: Path, root: Path = ROOT) -> list[str]:
    """Return the reasons why this page does not match the current code; empty if it matches."""
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
        else:
            if line.read_with != now:
                found.append(
                    f"{page.name}: {line.name} is {now}, the page was read with {line.read_with}: "
                    f"read the proof against the code, then "
                    f"python -m tests.repository.proofs --update {PAGES}/{page.name}"
                )
    return found


def unproven(root: Path = ROOT, needed: tuple[str, ...] = NEED_A_PROOF) -> list[str]:
    """Return the objects on the list that no page binds."""
    named: set[str] = set()
    for page in pages(root):
        try:
            named |= {line.name for line in bindings(page)}
        except ProofError:
            continue  # reported by `complaints`
    return [name for name in needed if name not in named]


def pages(root: Path = ROOT) -> list[Path]:
    """Return every proof page: all pages of the folder except its README."""
    return sorted(p for p in (root / PAGES).glob("*.md") if p.name != "README.md")


def update(page: Path, root: Path = ROOT) -> list[str]:
    """Write the current hashes into the page; return one line per change."""
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
    """Check every page, or update the given ones."""
    parser = argparse.ArgumentParser(prog="python -m tests.repository.proofs", description=__doc__)
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
    found += [f"{name}: no page proves it" for name in unproven()]
    print("\n".join(found) if found else "every page binds the code as it is")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
