"""How good a model is on private rows: each row's answer, tallies of them, noisy figures with intervals.

:func:`evaluate` takes rows in memory, :func:`evaluate_rows` reads them once they are paid for. The result is
an :class:`Evaluation`, which :func:`tacit.save` keeps beside a model and :func:`evaluations_of` reads again.
"""

from tacit.evaluation.measuring import evaluate, evaluate_rows
from tacit.evaluation.result import Evaluation, evaluations_of
from tacit.evaluation.rowlocal import register_rowwise

__all__ = ["Evaluation", "evaluate", "evaluate_rows", "evaluations_of", "register_rowwise"]
