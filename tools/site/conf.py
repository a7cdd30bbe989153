"""Settings of Sphinx for the site; ``tools/site/build.py`` lays out the pages and runs it."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

import tacit

project = "tacit"
version = release = tacit.__version__
author = copyright = "the authors of tacit"

extensions = ["sphinx.ext.autodoc", "sphinx_copybutton", "myst_parser"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
python_maximum_signature_line_length = 88
toc_object_entries = False
add_module_names = False
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

html_theme = "furo"
html_title = f"tacit {release}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


def _public_home(app: Any, env: Any, node: Any, content: nodes.Element) -> nodes.Element | None:
    """A reference to the module in which a name is defined leads to the package that exports the name.

    Names that are exported nowhere stay plain code.
    """
    if node.get("refdomain") != "py" or node.get("reftype") == "mod":
        return None
    python = env.get_domain("py")
    package, _, last = node["reftarget"].rpartition(".")
    named = [name for name in python.objects if name.rpartition(".")[2] == last]
    home = f"{package or node.get('py:module') or ''}."
    near = [name for name in named if home.startswith(f"{name.rpartition('.')[0]}.")]
    found = near if package or len(near) == 1 else named
    if len(found) != 1:
        return None
    entry = python.objects[found[0]]
    return _link(app, node, entry.docname, entry.node_id, content)


def _link(app: Any, node: Any, page: str, anchor: str, content: nodes.Element) -> nodes.Element:
    from sphinx.util.nodes import make_refnode

    return make_refnode(app.builder, node["refdoc"], page, anchor, content)


def _of_scikit_learn(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Whether a member is scikit-learn's own, which its documentation describes; None for all others."""
    home = getattr(member, "__module__", None) or ""
    return True if home.startswith("sklearn") or re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", _of_scikit_learn)
    app.connect("missing-reference", _public_home)
