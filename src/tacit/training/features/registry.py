"""Fixed features by name.

The registry is closed: a name in a file of a network can only mean what is listed here or was registered by
code. A module is imported when its features are asked for, since some need packages that others do not.
:mod:`tacit.language` stands above this package, so its module is known by name alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from tacit import _validate
from tacit.errors import InvalidValue, ModelUnreadable
from tacit.training.features.fixed import FixedFeatures

__all__ = ["Chosen", "kind_of", "made", "names", "register", "side_of"]


@dataclass(frozen=True)
class _Entry:
    kind: str
    make: Callable[..., FixedFeatures]
    options: tuple[str, ...]
    side: int | None
    """What images in folders are made, where nothing else is said; None if that must be said."""


def _in(module: str, name: str) -> Callable[..., FixedFeatures]:
    def make(*arguments: Any, **settings: Any) -> FixedFeatures:
        made: FixedFeatures = getattr(import_module(module), name)(*arguments, **settings)
        return made

    return make


_entries: dict[str, _Entry] = {
    "efficientnet-lite0": _Entry(
        "image", _in("tacit.training.features.efficientnet", "EfficientNetLite0"),
        ("pixels", "precision", "mirrored"), 160,
    ),
    "minilm": _Entry("text", _in("tacit.language.embedding", "MiniLM"), ("tokens", "precision"), None),
    "scattering": _Entry("image", _in("tacit.training.features.scattering", "ScatteringFeatures"), (), None),
}


def register(
    name: str, kind: str, make: Callable[..., FixedFeatures], *, options: tuple[str, ...] = ()
) -> None:
    """Let features of your own be chosen by a name; whoever loads a network on them registers them too.

    ``make`` takes the shape of an image, or nothing for texts, and the ``options`` by name. It must be a
    public function, and its rows must keep what :class:`FixedFeatures` promises.
    """
    if name in _entries and _entries[name].make is not make:
        raise InvalidValue("name", name, "new, it stands for other features")
    _entries[name] = _Entry(_validate.choice("kind", kind, ("image", "text")), make, options, None)


def names(kind: str | None = None) -> tuple[str, ...]:
    """The names of all features, or of those of ``"image"`` or ``"text"``."""
    return tuple(name for name, entry in _entries.items() if kind in (None, entry.kind))


def kind_of(name: str) -> str:
    """What features of this name are made of, ``"image"`` or ``"text"``."""
    return _entries[_validate.choice("features", name, names())].kind


def side_of(name: str, pixels: int | None) -> int | None:
    """The side that images in folders are made for these features; None if that is not known."""
    return pixels or _entries[_validate.choice("features", name, names())].side


def made(name: str, shape: tuple[int, ...] = (), **settings: Any) -> FixedFeatures:
    """The features of this name for images of this shape, or for texts, by the settings that are not None."""
    entry = _entries[_validate.choice("features", name, names())]
    given = {key: value for key, value in settings.items() if value is not None}
    for key in given:
        if key not in entry.options:
            allowed = f"It has {', '.join(entry.options)}." if entry.options else "It has none."
            raise InvalidValue(f"setting of features {name!r}", key, "one that they have", allowed)
    return entry.make(*([shape] if entry.kind == "image" else []), **given)


@dataclass
class Chosen:
    """The features that a network stands on: name, settings, and the digest that they must have.

    A file can be described without them; they are made when the first prediction wants them, and refused if
    they are not those that the network was trained on.
    """

    name: str
    shape: tuple[int, ...]
    settings: Mapping[str, Any]
    width: int
    digest: str
    _made: FixedFeatures | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, features: FixedFeatures, shape: tuple[int, ...]) -> Chosen:
        """These features, as a network keeps them."""
        return cls(features.name, shape, features.settings, features.width, features.digest, features)

    @classmethod
    def from_dict(cls, known: Mapping[str, Any], shape: tuple[int, ...]) -> Chosen:
        """What :meth:`to_dict` gave; an unknown name is refused."""
        kind_of(known["name"])
        settings, width = dict(known["settings"]), int(known["width"])
        return cls(str(known["name"]), shape, settings, width, str(known["digest"]))

    def to_dict(self) -> dict[str, Any]:
        """Everything but the shape of an example, in JSON's terms."""
        known = {"name": self.name, "settings": dict(self.settings)}
        return {**known, "width": self.width, "digest": self.digest}

    @property
    def adapter(self) -> FixedFeatures:
        """The features themselves; raises if these weights are not the same."""
        if self._made is None:
            found = made(self.name, self.shape, **self.settings)
            if found.digest != self.digest:
                problem = f"The network was trained on other weights of the features {self.name!r}."
                advice = "Install the version of their package that it was trained with."
                raise ModelUnreadable(problem, advice)
            self._made = found
        return self._made

    def described(self) -> str:
        """In words, for people to read."""
        known = ", ".join(f"{key} {value}" for key, value in self.settings.items())
        chosen = f" ({known})" if known else ""
        return f"{self.name}{chosen}, {self.width} numbers, digest {self.digest[:12]}"
