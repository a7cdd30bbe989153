"""Losses of PyTorch for randomized labels. All of them are post-processing of the responses.

The target of each is what a randomizer of this package says: for :class:`ResponseLoss` and
:class:`SoftTargetLoss` the rows of its ``log_likelihood``, for :class:`DebiasedLoss` the responses of
randomized response.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tacit import _validate

__all__ = ["DebiasedLoss", "ResponseLoss", "SoftTargetLoss"]


class ResponseLoss(nn.Module):
    """−log P(response | x): the forward-corrected loss (Patrini et al. 2017), averaged over the batch.

    With q the softmax of the logits and L the log-likelihood, it is −log Σ_c q_c(x)·e^(L_c). Its gradient is
    that of a cross-entropy whose target is the posterior q·e^L of the present model (Fisher's identity): the
    loss of ALIBI, with the prior computed anew at every step. Its minimum over all q, with unlimited data, is
    the true conditional distribution of the labels.

    >>> loss = ResponseLoss()
    >>> round(loss(torch.zeros(1, 3), torch.tensor([[1.0, 0.0, 0.0]])).item(), 4)
    -0.4528
    """

    def forward(self, logits: Tensor, log_likelihood: Tensor) -> Tensor:
        """The mean loss of a batch."""
        return -torch.logsumexp(torch.log_softmax(logits, dim=-1) + log_likelihood, dim=-1).mean()


class SoftTargetLoss(nn.Module):
    """Cross-entropy with the posterior of each label as its target (Malek et al. 2021).

    ``prior`` holds the probabilities of the classes that the posterior starts from, such as the model's
    predictions after the last epoch; without it, those of the logits, without a gradient.

    >>> loss, told = SoftTargetLoss(), torch.tensor([[1.0, 0.0, 0.0]])
    >>> round(loss(torch.zeros(1, 3), told, prior=torch.tensor([[0.1, 0.8, 0.1]])).item(), 4)
    1.0986
    """

    def forward(self, logits: Tensor, log_likelihood: Tensor, prior: Tensor | None = None) -> Tensor:
        """The mean loss of a batch."""
        start = torch.log_softmax(logits, dim=-1)
        known = start.detach() if prior is None else prior.log()
        target = torch.softmax(known + log_likelihood, dim=-1)
        return -(target * start).sum(dim=-1).mean()


class DebiasedLoss(nn.Module):
    """The unbiased estimate of the cross-entropy with the true labels, from randomized responses.

    Randomized response over K classes answers with probabilities M = q·1 + (p − q)·I, where p = e^ε/(e^ε + K
    − 1) and q = (1 − p)/(K − 1). The loss ℓ of the responses with M⁻¹ in front, (ℓ(response) − q Σ_c ℓ(c))/(p
    − q), has the loss of the true label as its mean over responses (Natarajan et al. 2013; Patrini et al.
    2017, backward correction). It may be negative, and at small ε its variance is large;
    :class:`ResponseLoss` usually learns better.

    >>> loss = DebiasedLoss(epsilon=1.0, categories=3)
    >>> logits = torch.tensor([[2.0, 0.0, 0.0]])
    >>> by_response = torch.stack([loss(logits, torch.tensor([r])) for r in range(3)])
    >>> keep = math.e / (math.e + 2)
    >>> chances = torch.tensor([keep, (1 - keep) / 2, (1 - keep) / 2])
    >>> torch.isclose(chances @ by_response, nn.functional.cross_entropy(logits, torch.tensor([0]))).item()
    True
    """

    def __init__(self, epsilon: float, categories: int) -> None:
        super().__init__()
        grown = math.exp(_validate.epsilon(epsilon))
        self.categories = _validate.count("categories", categories, 2)
        self.keep, self.other = grown / (grown + categories - 1), 1 / (grown + categories - 1)

    def forward(self, logits: Tensor, responses: Tensor) -> Tensor:
        """The mean loss of a batch; ``responses`` are codes of classes."""
        losses = -torch.log_softmax(logits, dim=-1)
        told = losses.gather(-1, responses.long().unsqueeze(-1)).squeeze(-1)
        return ((told - self.other * losses.sum(dim=-1)) / (self.keep - self.other)).mean()
