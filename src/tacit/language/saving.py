"""What was trained on top of a frozen transformer, in a file of its own, to be put onto it again.

``tacit.save(trainer, path)`` writes the trained tensors, the guarantee, the public facts of the method and
the digest of the frozen weights; nothing of the frozen weights themselves. :func:`tacit.load` gives a
:class:`TunedPart`, and :meth:`TunedPart.onto` a module that predicts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit.errors import InvalidValue, ModelUnreadable
from tacit.models.description import Description
from tacit.models.registry import register_tagged
from tacit.training import past, saving
from tacit.training.networks.network import Weights

if TYPE_CHECKING:
    from tacit.language.tuning import Tuned

__all__ = ["TAG", "TunedPart"]

TAG = "tuned"
"""The entry of a file's metadata that says how its tensors were trained."""


@dataclass(frozen=True)
class TunedPart(Weights):
    """A trained prompt, prefix, LoRA or last layers with its head, and its guarantee."""

    @property
    def known(self) -> dict[str, Any]:
        """The public facts: method, sizes, classes, and the digest of the frozen transformer."""
        found: dict[str, Any] = json.loads(self.facts[TAG])
        return found

    def describe(self) -> Description:
        """What may be said of it: method, frozen transformer, names and shapes of what was trained."""
        known = self.known
        own = {name: each for name, each in self.tensors.items() if name != "_extra_state"}
        count = sum(each.numel() for each in own.values())
        facts = [(name, str(value)) for name, value in known.items() if name not in ("method", "transformer")]
        return Description(
            f"{known['method']} of a frozen transformer",
            (*facts, ("trained numbers", f"{count:,}"), ("digest of the transformer", known["transformer"])),
            tensors=tuple((name, tuple(each.shape)) for name, each in own.items()),
        )

    def onto(self, model: Any) -> Tuned:
        """The module on its frozen transformer, a transformers model or :class:`tacit.language.Pretrained`.

        Raises :class:`tacit.errors.InvalidValue` for another transformer than it was trained on. The module
        is marked with the private runs that it comes from, so that a further run counts them too.
        """
        from tacit.language.tuning import METHODS
        from tacit.language.weights import Pretrained, digest_of

        known = self.known
        digest = model.digest if isinstance(model, Pretrained) else digest_of(model)
        if digest != known["transformer"]:
            raise InvalidValue(
                "model", f"a transformer of digest {digest[:12]}…",
                f"the frozen transformer that this part was trained on, {known['transformer'][:12]}…",
                "Its numbers mean nothing on another model: read the same weights, from the same package or "
                "folder.",
            )  # fmt: skip
        options = {name: value for name, value in known.items() if name not in ("method", "transformer")}
        try:
            made = METHODS[known["method"]](model, **options)
        except (KeyError, TypeError):
            raise ModelUnreadable(
                f"The file is of a method that this version of tacit does not know: {known['method']!r}.",
                "Update tacit.", path=None,
            ) from None  # fmt: skip
        saving.put(made, self.tensors)
        past.mark(made, saving.runs_of(self.tensors, self.facts, self.guarantee_))
        return made


register_tagged(TAG, TunedPart)
