"""What holds for the whole package: quick to import, exports as declared, documented."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import tacit


def public_modules() -> list[str]:
    names = [module.name for module in pkgutil.walk_packages(tacit.__path__, "tacit.")]
    return ["tacit", *(name for name in names if not any(part.startswith("_") for part in name.split(".")))]


def test_import_is_light() -> None:
    """It loads nothing but itself and the standard library; every other package waits until it is used."""
    code = "import sys; before = set(sys.modules); import tacit; print(*sys.modules.keys() - before)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in process.stdout.split()}
    assert loaded - sys.stdlib_module_names == {"tacit"}


@pytest.mark.parametrize("name", public_modules())
def test_exports_are_what_all_says(name: str) -> None:
    module = importlib.import_module(name)
    assert (module.__doc__ or "").strip(), f"{name} has no docstring"
    declared = getattr(module, "__all__", None)
    if declared is None:
        assert not hasattr(module, "__path__"), f"the package {name} has no __all__"
        return
    assert len(set(declared)) == len(declared)
    missing = [export for export in declared if not hasattr(module, export)]
    assert not missing
    if hasattr(module, "__path__"):
        undeclared = {
            export
            for export, value in vars(module).items()
            if not export.startswith("_") and export not in declared and not isinstance(value, ModuleType)
        }
        assert not {export for export in undeclared if comes_from_tacit(vars(module)[export])}


def comes_from_tacit(value: object) -> bool:
    """Whether it is defined in a public module of tacit; a helper of a private one is no export."""
    first, *rest = (getattr(value, "__module__", None) or "").split(".")
    return first == "tacit" and not any(part.startswith("_") for part in rest)


def public_objects() -> list[tuple[str, object]]:
    found = {}
    for name in public_modules():
        module = importlib.import_module(name)
        for export in getattr(module, "__all__", ()):
            found[f"{name}.{export}"] = getattr(module, export)
    return sorted(found.items())


@pytest.mark.parametrize(("name", "value"), public_objects(), ids=[name for name, _ in public_objects()])
def test_public_names_are_documented(name: str, value: object) -> None:
    if not (inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value)):
        return
    assert own_docstring(value), f"{name} has no docstring"
    if inspect.isclass(value):
        bare = [
            member
            for member, content in vars(value).items()
            if not member.startswith("_")
            and (inspect.isfunction(content) or isinstance(content, property | classmethod | staticmethod))
            and not inspect.getdoc(getattr(value, member))
        ]
        assert not bare, f"{name} has undocumented members"


def own_docstring(value: object) -> str:
    """The docstring, unless a dataclass made it up from the fields."""
    text = inspect.getdoc(value) or ""
    made_up = inspect.isclass(value) and text.startswith(f"{value.__name__}(")
    return "" if made_up else text
