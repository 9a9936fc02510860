r"""Configuration of the site that ``make site`` builds with Sphinx from pages and docstrings.

The source folder is the top of the tree, so that the links of the pages work both on the site and
in the repository.
"""

from __future__ import annotations

import logging
import re
import sys
from importlib.metadata import version as _version
from pathlib import Path
from typing import Any

from sphinx.errors import ExtensionError
from sphinx.ext.napoleon import NumpyDocstring

sys.path.insert(0, str(Path(__file__).parents[1]))

from docs.generated import appended, external_assets

project = "dpcore"
author = copyright = "the dpcore authors"  # noqa: A001 - the name that Sphinx reads
release = version = _version("dpcore")
extensions = ["myst_nb", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = ["docs/**", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
exclude_patterns = [".*", "build", "dist", "**/.ipynb_checkpoints"]

html_theme = "furo"
html_title = f"dpcore {version}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}

myst_heading_anchors = 6
myst_enable_extensions: list[str] = []  # pages are CommonMark with tables, as code hosts render it
logging.getLogger("traitlets").setLevel(logging.WARNING)
nb_execution_mode = "force"
nb_execution_timeout = 180  # per notebook cell, enough for a busy machine
nb_execution_raise_on_error = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the type hints of arrays are too long to be useful
autodoc_class_signature = "mixed"
add_module_names = False
python_use_unqualified_type_names = True

smartquotes = False  # they would turn the two hyphens of an option into a dash

_CODE = re.compile(r"(``.*?``|:\w+:`.*?`|^ *>>> .*?(?:\n *\n|\Z))", re.DOTALL | re.MULTILINE)
_MARKUP = re.compile(r"(?<!\\)([|*]|(?<=\w)_(?!\w))")
_FOLDER_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)*[\w/]+\)")


def _append(_app: object, page: str, source: list[str]) -> None:
    if "tutorials/" not in page:
        # A link to a folder has no page on the site: keep only its text.
        source[0] = _FOLDER_LINK.sub(r"\1", source[0]) + appended(page)


def _as_text(
    _app: object, what: str, _name: str, _obj: object, _options: object, lines: list[str]
) -> None:
    # Formulas in docstrings contain |x|, 2 * k and x_, which are not markup outside of code.
    text = "\n".join(lines)
    parts = _CODE.split(text)
    parts[::2] = [_MARKUP.sub(r"\\\1", part) for part in parts[::2]]
    text = "".join(parts)
    # Sphinx would read the first line of a property as `type: meaning`.
    lines[:] = text.split("\n") if what == "property" else NumpyDocstring(text).lines()


def _finish(app: Any, failed: Exception | None) -> None:
    if failed is not None:
        return
    out = Path(app.outdir)
    page = '<!doctype html><meta http-equiv="refresh" content="0; url=docs/index.html">\n'
    (out / "index.html").write_text(page, encoding="utf-8")
    for path in sorted([*out.rglob("*.html"), *out.rglob("*.css")]):
        if found := external_assets(path.read_text(encoding="utf-8")):
            raise ExtensionError(f"{path.name} loads files from another host: {found}")


def setup(app: Any) -> None:
    """Connect the generated parts; called by Sphinx."""
    app.connect("source-read", _append)
    app.connect("autodoc-process-docstring", _as_text)
    app.connect("build-finished", _finish)
