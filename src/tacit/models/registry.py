"""What can be saved and loaded: a closed registry, filled by the packages that fit models.

Estimators register a tag, their class and the attributes that were released (:func:`register`); they are
kept in the library's own archive (:mod:`tacit.models.archive`). Classes that are kept in another format
register how they are written (:func:`register_writer`), and a format how it is read
(:func:`register_reader`).

A file is read by the package that knows its format, which is imported first where that has not happened yet.
The names of these packages are in this module (:data:`HOMES`). No name is ever taken from a file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from tacit._extras import needed
from tacit.errors import InvalidValue

__all__ = [
    "ARCHIVE",
    "SAFETENSORS",
    "Kind",
    "Reader",
    "Writer",
    "kind_of",
    "kind_tagged",
    "maker_of",
    "reader_of",
    "register",
    "register_reader",
    "register_tagged",
    "register_writer",
    "require",
    "saved_classes",
    "writer_of",
]

PATH = str | os.PathLike[str]

ARCHIVE, SAFETENSORS = "archive", "safetensors"
HOMES = {
    ARCHIVE: (
        "tacit.models.archive", "tacit.estimators.registry", "tacit.labels.saving", "tacit.pate.registry",
        "tacit.local.learning", "tacit.local.records",
    ),
    SAFETENSORS: ("tacit.training.networks.network",),
}
"""The modules that register how files of a format are read, and what they may hold."""
ON_DEMAND = {"prompt-pate": "tacit.language.prompt_pate"}
"""The modules that register a kind of estimator whose imports are heavy: only a file that holds one needs
them."""
TAGGED = {"tuned": "tacit.language.saving"}
"""The modules that know what weights are whose file has an entry of this name in its metadata."""


@dataclass(frozen=True)
class Kind:
    """An estimator's class, the tag it has in files, and the attributes that were released."""

    tag: str
    type: type[Any]
    attributes: tuple[str, ...]
    public: bool


class Writer(Protocol):
    """Writes a fitted object with its guarantee, all of it or nothing; ``evaluations`` as dictionaries."""

    def __call__(
        self, model: Any, path: PATH, /, *, overwrite: bool, evaluations: Sequence[Mapping[str, Any]]
    ) -> None: ...


@dataclass(frozen=True)
class Reader:
    """How files of a format are loaded, and how they are described without making a model."""

    load: Callable[[PATH], Any]
    describe: Callable[[PATH], dict[str, Any]]


_kinds: dict[str, Kind] = {}
_writers: dict[type[Any], Writer] = {}
_readers: dict[str, Reader] = {}
_tagged: dict[str, Callable[..., Any]] = {}


def register(tag: str, cls: type[Any], attributes: Sequence[str] = (), *, public: bool = False) -> None:
    """Let estimators of this class be saved, under a tag that never changes its meaning.

    A scikit-learn estimator is saved as its parameters and those of the ``attributes`` that are set, which
    must be public or released. A class may do it in its own way: ``_to_saved() -> (dict, arrays by name)``
    and the class method ``_from_saved(dict, arrays)``. ``public`` says that the class reads nothing from the
    data it is fitted to, and so needs no guarantee.
    """
    known = _kinds.get(tag)
    if known is not None and known.type is not cls:
        raise InvalidValue("tag", tag, f"new, it stands for {known.type.__name__}")
    _kinds[tag] = Kind(tag, cls, tuple(attributes), public)


def register_writer(cls: type[Any], write: Writer) -> None:
    """Let :func:`tacit.save` write objects of this class, and of its subclasses, by calling ``write``."""
    _writers[cls] = write


def register_reader(
    format: str, load: Callable[[PATH], Any], describe: Callable[[PATH], dict[str, Any]]
) -> None:
    """Let :func:`tacit.load` read files of a format that :data:`HOMES` knows."""
    if format not in HOMES:
        raise InvalidValue("format", format, f"one of {', '.join(HOMES)}")
    _readers[format] = Reader(load, describe)


def register_tagged(tag: str, make: Callable[..., Any]) -> None:
    """Let weights whose file has this entry in its metadata, one of :data:`TAGGED`, be made by ``make``."""
    if tag not in TAGGED:
        raise InvalidValue("tag", tag, f"one of {', '.join(TAGGED)}")
    _tagged[tag] = make


def maker_of(facts: Mapping[str, str]) -> Callable[..., Any] | None:
    """What makes something of the weights of a file with such metadata; None where nothing more is known."""
    for tag, module in TAGGED.items():
        if tag in facts:
            import_module(module)
            return _tagged[tag]
    return None


def kind_tagged(tag: str) -> Kind | None:
    """The kind of estimator that goes by a tag in files, None if there is none."""
    if tag in ON_DEMAND and tag not in _kinds:
        with needed("Language models", extra="llm"):
            import_module(ON_DEMAND[tag])
    return _kinds.get(tag)


def kind_of(model: Any) -> Kind | None:
    """The kind of an estimator, by its exact class: a subclass may read or keep anything."""
    return next((kind for kind in _kinds.values() if type(model) is kind.type), None)


def saved_classes() -> list[str]:
    """The names of the classes that can be saved."""
    return [kind.type.__name__ for kind in _kinds.values()] + [cls.__name__ for cls in _writers]


def writer_of(model: Any) -> Writer | None:
    """How an object that is not kept in the archive is written; None for all others."""
    return next((_writers[cls] for cls in type(model).__mro__ if cls in _writers), None)


def reader_of(format: str) -> Reader:
    """How files of a format are read; imports the package that knows the format."""
    require(format)
    return _readers[format]


def require(format: str) -> None:
    """Import the modules that register a format and its models; say how to install what they need."""
    with needed("Private networks"):
        for module in HOMES[format]:
            import_module(module)
