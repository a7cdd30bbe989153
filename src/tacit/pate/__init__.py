"""PATE: teachers that each saw a part of the private rows vote on public queries, and noise hides each vote.

A student that learns from the released labels is as private as the labels. Aggregators are frozen mechanisms
from votes of shape (queries, classes) to labels:

=========================  ==========================================  ====================================
aggregator                 answers                                     event of one answer
=========================  ==========================================  ====================================
:class:`GNMax`             every query, Gaussian noise                 Gaussian(σ/√2)
:class:`LNMax`             every query, Laplace noise                  Laplace(1/γ), twice
:class:`GumbelMax`         every query, Gumbel noise                   BoundedRange(ε)
:class:`ConfidentGNMax`    where the teachers agree                    Gaussian(σ₂/√2); Gaussian(σ₁) a test
:class:`InteractiveGNMax`  where the teachers contradict a student     the same
=========================  ==========================================  ====================================

:class:`MultiLabel`, :class:`MeanVote` and :class:`MedianVote` take the teachers' predictions one by one, of
shape (teachers, queries, …), for several labels at once and for numbers.

:class:`PATEClassifier` goes the whole way: it gives each unit to one teacher, trains the teachers, plans
threshold and noise for a budget (:func:`plan_answers`), charges, answers public queries and teaches a
student. :class:`PrivateNeighbors` does the same without teachers.

``answer`` is the mechanism, ``event`` what it costs, ``release`` charges a ledger and answers, and ``rdp``
computes Rényi divergences, also from the votes, which makes them private until they are :func:`sanitise`-d.

Each record must be seen by one teacher: then one record changes one vote of each query. Papers: Papernot et
al., "Semi-supervised knowledge transfer for deep learning from private training data" (2017) and "Scalable
private learning with PATE" (2018).
"""

from tacit.pate.aggregator import ABSTAINED, Aggregator
from tacit.pate.answering import AnswerRate
from tacit.pate.classifier import PATEClassifier
from tacit.pate.confident import ConfidentGNMax, InteractiveGNMax
from tacit.pate.cost import RenyiCost
from tacit.pate.multilabel import MultiLabel
from tacit.pate.neighbours import PrivateNeighbors
from tacit.pate.network import Network
from tacit.pate.noisy_max import GNMax, GumbelMax, LNMax
from tacit.pate.planning import AnswerPlan, GroupPlan, plan_answers
from tacit.pate.predictions import PredictionAggregator, Predictions
from tacit.pate.regression import MeanVote, MedianVote
from tacit.pate.releasing import Answers
from tacit.pate.sanitising import Sanitised, sanitise

__all__ = [
    "ABSTAINED",
    "Aggregator",
    "AnswerPlan",
    "AnswerRate",
    "Answers",
    "ConfidentGNMax",
    "GNMax",
    "GroupPlan",
    "GumbelMax",
    "InteractiveGNMax",
    "LNMax",
    "MeanVote",
    "MedianVote",
    "MultiLabel",
    "Network",
    "PATEClassifier",
    "PredictionAggregator",
    "Predictions",
    "PrivateNeighbors",
    "RenyiCost",
    "Sanitised",
    "plan_answers",
    "sanitise",
]
