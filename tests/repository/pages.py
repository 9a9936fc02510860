r"""Run the code blocks of the documentation pages as a reader would.

``python`` blocks of a page run in order in one namespace, in a folder that contains a copy of
examples/. A block with ``>>>`` prompts is a doctest, so its output is compared; other blocks are
executed. ``console`` blocks contain commands after ``$ ``; the lines that follow a command, if any,
are its output (both streams), with ``...`` for anything; an exit code other than 0 is stated in a
comment::

    $ dpcore audit examples/peers.py:opendp_laplace --claim epsilon=0.8 --pair 0 1   # exit 1
    ...
    REFUTED...

Commands that set up the environment (``make``, ``pip``, ``git``, ``cd``) are shown and not run; any
command that is neither on that list nor on the list of commands to run is refused, so that nothing
is skipped silently. Code that must not run at all is a ``text`` block.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LANGUAGES = frozenset({"python", "console", "text", "json", "toml"})
RUN = frozenset({"dpcore", "python", "echo", "cat", "ls"})
SHOWN_ONLY = frozenset({"make", "pip", "git", "cd"})
TIMEOUT_SECONDS = 120

PLAIN = re.compile(r"dpcore (?!.*--jobs)[^|><;&$~*?`]*")
Warm = Callable[[list[str], Path], tuple[int, str]]

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL
)
_EXIT = re.compile(r"#\s*exit (\d+)\s*$")


class PageError(AssertionError):
    """The output or exit code of a block differs from the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block: its language, its text, and the line of the page where its text begins."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of a console block, with its expected output and exit code."""

    place: str
    line: str
    exit_code: int
    output: str


def blocks(page: str, markdown: str) -> list[Block]:
    r"""Return every fenced block of a page, in order.

    >>> [(b.place, b.language) for b in blocks("a.md", "# A\n```python\nx = 1\n```\n")]
    [('a.md:3', 'python')]
    """
    found = []
    for fence in _FENCE.finditer(markdown):
        line = markdown.count("\n", 0, fence.start("text")) + 1
        text = textwrap.dedent(fence["text"]) if fence["indent"] else fence["text"]
        found.append(Block(page=page, line=line, language=fence["language"].strip(), text=text))
    return found


def commands(block: Block) -> list[Command]:
    r"""The commands of a console block.

    >>> block = Block(page="a.md", line=1, language="console", text="$ dpcore x  # exit 2\nno\n")
    >>> [(c.line, c.exit_code, c.output) for c in commands(block)]
    [('dpcore x  # exit 2', 2, 'no\n')]
    """
    found = []
    chunks = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    if chunks[0].strip():
        raise PageError(f"{block.place}: a console block begins with '$ '")
    for chunk in chunks[1:]:
        joined = re.sub(r" *\\\n(?:> )? *", " ", chunk)
        line, _, output = joined.partition("\n")
        told = _EXIT.search(line)
        found.append(
            Command(
                place=block.place,
                line=line.strip(),
                exit_code=int(told[1]) if told else 0,
                output=output,
            )
        )
    return found


def agrees(printed: str, shown: str) -> bool:
    r"""Whether a command printed the output that the page shows; ``...`` stands for anything.

    >>> agrees("runs 512\nREFUTED  \n", "runs ...\nREFUTED\n"), agrees("REFUTED\n", "PROVEN\n")
    (True, False)
    """

    def trimmed(text: str) -> str:
        return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())

    pattern = ".*?".join(re.escape(part) for part in trimmed(shown).split("..."))
    return re.fullmatch(pattern, trimmed(printed), flags=re.DOTALL) is not None


def run_command(command: Command, folder: Path, warm: Warm | None = None) -> None:
    """Run one command in ``folder``; raises if output or exit code differ from the page.

    ``warm`` runs the commands that need no shell and start no workers, in a loaded process.
    """
    program = command.line.split()[0]
    if program in SHOWN_ONLY:
        return
    if program not in RUN:
        raise PageError(f"{command.place}: {program} is neither run nor shown only")
    if re.search(r"\|\s*(?:head|grep -q)\b", command.line):
        # `head` closes the pipe while the command still prints: whether it then fails is a race.
        raise PageError(f"{command.place}: a cut pipe is a race: show '...' instead")
    if program == "dpcore" and not Path(sys.executable).with_name(program).exists():
        raise PageError(f"{command.place}: dpcore is not installed here: make test installs it")
    if warm is not None and PLAIN.fullmatch(command.line):
        code, printed = warm(shlex.split(command.line, comments=True), folder)
    else:
        code, printed = _started(command.line, folder)
    told = f"{command.place}: $ {command.line}\nprinted\n{printed}"
    if code != command.exit_code:
        raise PageError(f"{told}and exited with {code}, not {command.exit_code}")
    if command.output.strip() and not agrees(printed, command.output):
        raise PageError(f"{told}where the page shows\n{command.output}")


def _started(line: str, folder: Path) -> tuple[int, str]:
    programs = Path(sys.executable).parent
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=environment | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return run.returncode, run.stdout


def run_python(block: Block, namespace: dict[str, object]) -> None:
    """Run one python block in the page's namespace."""
    if not re.search(r"^>>> ", block.text, flags=re.MULTILINE):
        # Prepend empty lines, so that a traceback names the line of the page.
        code = compile("\n" * (block.line - 1) + block.text, block.page, "exec")
        exec(code, namespace)  # noqa: S102 - a page is ours and reviewed, like a test
        return
    example = doctest.DocTestParser().get_doctest(
        block.text, namespace, block.place, block.page, block.line - 1
    )
    # The runner copies the reference to the namespace: definitions of the block must persist.
    example.globs = namespace
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(example, out=said.append, clear_globs=False)
    if runner.failures:
        raise PageError("".join(said))


def run_page(page: str, markdown: str, folder: Path, warm: Warm | None = None) -> int:
    """Run every block of a page in ``folder``; return their number."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    count = 0
    for block in blocks(page, markdown):
        if block.language not in LANGUAGES:
            raise PageError(f"{block.place}: {block.language!r} is none of {sorted(LANGUAGES)}")
        if block.language == "python":
            run_python(block, namespace)
            count += 1
        elif block.language == "console":
            for command in commands(block):
                run_command(command, folder, warm)
                count += 1
    return count


def run_alone(block: Block, folder: Path) -> None:
    """Run one block in new processes, in a folder without access to this tree.

    A python block that defines tests becomes a test file, with hypothesis in its default settings,
    including its deadline. Raises if the result differs from the page.
    """
    if block.language == "console":
        for command in commands(block):
            run_command(command, folder)
        return
    examples = doctest.DocTestParser().get_examples(block.text)
    if any("def test_" in example.source for example in examples):
        calls = re.compile("test_[a-z_]+[(]")
        source = "".join(each.source for each in examples if not calls.match(each.source))
        # Under continuous integration hypothesis has no deadline unless its profile is named.
        pytest = "python -m pytest -q -p no:cacheprovider --hypothesis-profile=default"
        name, run = "test_first.py", pytest
    elif examples:
        source, name, run = block.text, "first.txt", "python -m doctest -o ELLIPSIS"
    else:
        source, name, run = block.text, "first.py", "python"
    (folder / name).write_text(source, encoding="utf-8")
    run_command(Command(place=block.place, line=f"{run} {name}", exit_code=0, output=""), folder)
