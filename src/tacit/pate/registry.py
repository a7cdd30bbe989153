"""The classifiers of this package, known to model files."""

from __future__ import annotations

from tacit.models.registry import register
from tacit.pate.classifier import PATEClassifier
from tacit.pate.neighbours import PrivateNeighbors

__all__: list[str] = []

register("pate", PATEClassifier, PATEClassifier.released)
register("private-neighbors", PrivateNeighbors, PrivateNeighbors.released)
