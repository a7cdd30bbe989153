"""Attacks: models, releases and updates → scores that say what leaked.

Every attack takes arrays and callables, so that any model can be attacked, ours or not. Scores of membership
become lower bounds on ε in :mod:`tacit.audit`.

======================  ======================================================================================
membership              :func:`signal`, :func:`loss_threshold`, :func:`shadow_attack`, :func:`lira`,
                        :func:`rmia`, :func:`train_shadows`; results as :class:`MembershipScores`
inversion               :func:`invert` (the input of a class), :func:`infer_attribute`
extraction              :func:`solve_linear` (equation solving), :func:`distil` (imitation)
linkage                 :func:`scoreboard` (sparse ratings), :func:`link` (tables of attributes)
prompts                 :func:`calibrated`, :func:`exposure`, :func:`extract` (demonstrations of a prompt)
statistics              :func:`average`, :func:`queries_needed`, :func:`difference`, :func:`reconstruct`
gradients               :mod:`tacit.attacks.gradients` (images and labels from gradients; needs PyTorch)
gan                     :mod:`tacit.attacks.gan` (a participant who makes others' images; needs PyTorch)
======================  ======================================================================================
"""

from tacit.attacks.extraction import Distilled, LinearCopy, distil, solve_linear
from tacit.attacks.inversion import Inverted, infer_attribute, invert
from tacit.attacks.linkage import Linked, link, scoreboard
from tacit.attacks.membership import lira, loss_threshold, rmia, shadow_attack, signal, train_shadows
from tacit.attacks.prompts import Exposure, Extracted, calibrated, exposure, extract
from tacit.attacks.result import Found, MembershipScores
from tacit.attacks.statistics import Averaged, Reconstructed, average, difference, queries_needed, reconstruct

__all__ = [
    "Averaged",
    "Distilled",
    "Exposure",
    "Extracted",
    "Found",
    "Inverted",
    "LinearCopy",
    "Linked",
    "MembershipScores",
    "Reconstructed",
    "average",
    "calibrated",
    "difference",
    "distil",
    "exposure",
    "extract",
    "infer_attribute",
    "invert",
    "link",
    "lira",
    "loss_threshold",
    "queries_needed",
    "reconstruct",
    "rmia",
    "scoreboard",
    "shadow_attack",
    "signal",
    "solve_linear",
    "train_shadows",
]
