"""Saving whatever was fitted with its guarantee, and loading it again.

Estimators and pipelines are kept in the library's own archive (:mod:`tacit.models.archive`), networks as
safetensors with the guarantee in the file's metadata (:mod:`tacit.training.saving`). Which of the two a file
is follows from its first bytes. Neither is a pickle, and nothing in a file is executed.

>>> import tempfile, pathlib, numpy as np
>>> from tacit.estimators import LogisticRegression
>>> model = LogisticRegression(epsilon=1.0, classes=[0, 1], norm=1.0).fit(np.array([[0.1], [0.9]]), [0, 1])
>>> path = pathlib.Path(tempfile.mkdtemp()) / "small.tacit"
>>> save(model, path)
>>> load(path).guarantee_ == model.guarantee_
True
>>> describe(path)["steps"][0]["statement"].startswith("(ε = 1, δ = 0)-differentially private")
True
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.models import registry
from tacit.models.claims import evaluation_dicts
from tacit.models.registry import ARCHIVE, PATH, SAFETENSORS

__all__ = ["describe", "load", "save"]


def save(
    model: Any, path: PATH, *, overwrite: bool = False, evaluations: Sequence[Any] | None = None
) -> None:
    """Write whatever was fitted with its guarantee: all or nothing, and over a file only with ``overwrite``.

    ``model`` is a tacit estimator, a scikit-learn pipeline of a preprocessor and estimators, a
    :class:`~tacit.training.Trainer` after its run, or a network that :func:`load` gave. ``evaluations``,
    which :func:`tacit.evaluate` made, are kept beside it; left out, those that the model was loaded with are,
    unless it was fitted again since.

    Raises :class:`tacit.errors.InvalidValue` for a model without a guarantee or of an unknown class, and
    :class:`tacit.errors.GuaranteeVoid` for a run whose guarantee was lost.
    """
    kept = getattr(model, "evaluations_", ()) if evaluations is None else evaluations
    write = registry.writer_of(model) or _archive_writer()
    write(model, path, overwrite=overwrite, evaluations=evaluation_dicts(kept))


def load(path: PATH) -> Any:
    """The model in a file, ready to predict, with the guarantee it was saved with.

    An estimator or a pipeline loads as it was saved. A network of a named architecture, as ``tacit train``
    writes it, has ``predict`` and ``predict_proba``; weights of somebody's own architecture cannot predict by
    themselves (:func:`tacit.training.load_weights` puts them into a module). All have ``guarantee_``,
    ``event_`` and ``describe()``; of a pipeline, its last step has. ``evaluations_`` holds the evaluations
    that were saved beside the model, which :func:`tacit.evaluation.evaluations_of` reads.

    A file that is altered in any byte, truncated, written by a later format, of an unknown class, without
    its guarantee, or with a guarantee or an evaluation that states less than its event costs raises
    :class:`tacit.errors.ModelUnreadable`. Nothing in a file is executed.
    """
    return registry.reader_of(_format_of(path)).load(path)


def describe(path: PATH) -> dict[str, Any]:
    """What a file says, with the same checks as :func:`load`, but not made into a model.

    Arrays appear as their type and shape; whatever has a guarantee states it in words too.
    """
    return registry.reader_of(_format_of(path)).describe(path)


def _archive_writer() -> registry.Writer:
    registry.require(ARCHIVE)
    from tacit.models import archive

    return archive.save


def _format_of(path: PATH) -> str:
    """The format of a file, by its first bytes: a length and a JSON object begin a file of safetensors."""
    place = Path(path)
    try:
        with place.open("rb") as file:
            first = file.read(9)
    except OSError:
        return SAFETENSORS if place.suffix == ".safetensors" else ARCHIVE
    tensors = len(first) == 9 and first[8:] == b"{" and not first.startswith(b"PK")
    return SAFETENSORS if tensors else ARCHIVE
