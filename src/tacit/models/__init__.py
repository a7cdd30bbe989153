"""Whatever was fitted, in a file with its guarantee: save, load, describe.

:func:`save` and :func:`load` take estimators, pipelines and networks alike. What may be in a file is
decided by a closed registry (:mod:`tacit.models.registry`), which the packages above fill; this package
imports none of them. What a fitted model says of itself is a :class:`Description`.
"""

from tacit.models.description import Description, Weight
from tacit.models.fitted import description_of, guarantee_of
from tacit.models.registry import register, register_reader, register_writer
from tacit.models.saving import describe, load, save

__all__ = [
    "Description",
    "Weight",
    "describe",
    "description_of",
    "guarantee_of",
    "load",
    "register",
    "register_reader",
    "register_writer",
    "save",
]
