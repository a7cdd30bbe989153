"""Gradient inversion: training examples from the gradients that a participant sends.

A server of collaborative learning sees a gradient, or the difference of weights before and after a few steps.
Inputs whose gradient matches it are mostly the participant's own (Zhu, Liu and Han 2019). The attacks here
get just that: the model, its loss and the gradients, never the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tacit import _validate
from tacit._extras import needed
from tacit.errors import InvalidValue

with needed("Attacks on gradients"):
    import torch
    from torch import Tensor, nn

__all__ = [
    "GradientInversion",
    "as_gradients",
    "gradients_of",
    "infer_labels",
    "invert_gradients",
    "psnr",
    "undisturbed",
]

Loss = Callable[[Tensor, Tensor], Tensor]

_CHECKED = 25
"""Every so many steps of descent the best distance is looked at."""
_UNSCALED = 0.2
"""A gradient of more examples than classes is taken as a mean that was not clipped if its estimated scale
is above this; the estimate is too small there, by a factor of about three."""


@dataclass(frozen=True)
class GradientInversion:
    """Inputs and labels that were reconstructed, and how far their gradient is from the one that was seen.

    ``distance`` is the squared distance divided by the squared length of the gradient that was seen; for the
    method ``"geiping"`` it is one minus the cosine of the angle between both.
    """

    inputs: Tensor
    labels: Tensor
    distance: float


@contextmanager
def undisturbed(model: nn.Module, seed: int) -> Iterator[None]:
    """A block that asks ``model`` and leaves it as it was, down to the statistics of batch normalisation.

    A model in training mode updates buffers in every forward pass, and draws its dropout from the global
    generator of PyTorch. Here the draws come from ``seed``; buffers and generator are put back afterwards.

    >>> layer = nn.BatchNorm1d(1)
    >>> with undisturbed(layer, seed=0):
    ...     _ = layer(torch.tensor([[1.0], [3.0]]))
    >>> float(layer.running_mean)
    0.0
    """
    kept = [each.detach().clone() for each in model.buffers()]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            yield
        finally:
            with torch.no_grad():
                for each, before in zip(model.buffers(), kept, strict=True):
                    each.copy_(before)


def gradients_of(model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    """What a participant would send: the gradient of ``loss(model(inputs), targets)``.

    There is one for each parameter that is trained. Frozen ones, with ``requires_grad=False``, have none.
    """
    found = torch.autograd.grad(loss(model(inputs), targets), _trained(model))
    return tuple(each.detach() for each in found)


def as_gradients(before: Sequence[Tensor], after: Sequence[Tensor], *, rate: float) -> tuple[Tensor, ...]:
    """The gradient behind one step of gradient descent, from the weights ``before`` and ``after`` it.

    >>> as_gradients([torch.tensor([1.0])], [torch.tensor([0.8])], rate=0.1)[0].round(decimals=3).tolist()
    [2.0]
    """
    size = _validate.positive("rate", rate)
    return tuple((old - new).detach() / size for old, new in zip(before, after, strict=True))


def infer_labels(gradients: Sequence[Tensor], *, batch_size: int) -> Tensor:
    """The labels of a batch from the gradient of the last layer under cross-entropy.

    The gradient of the last bias is the mean over the batch of (softmax − one-hot): the row of a class that
    is absent has a positive entry. For one example the label is the only negative one (iDLG; Zhao, Mopuri
    and Bilen 2020); for more, every negative entry is a label. Each label found adds its share of a one-hot
    vector back, and the most negative entry is the next one, until the batch is full.

    Clipping, a sum in place of a mean, or a model that is sure already, multiply the gradient by an unknown
    scale. It is estimated as if the model gave all classes the same probability: then the negative entries
    add up to −scale·(1 − their number / classes). Signs do not depend on the scale, so labels leak where
    images no longer do.
    """
    count = _validate.count("batch_size", batch_size, 1)
    last = gradients[-1]
    if last.dim() != 1:
        advice = "The last parameter of the model has to be the bias of its last layer."
        raise InvalidValue("gradients", tuple(last.shape), "those of a last bias, a vector", advice)
    left = last.detach().double().clone()
    one = _scale(left, count) / count
    found = [place for place in left.argsort().tolist() if left[place] < 0][:count]
    for place in found:
        left[place] += one
    while len(found) < count:
        place = int(left.argmin())
        found.append(place)
        left[place] += one
    return torch.tensor(sorted(found))


def invert_gradients(
    model: nn.Module,
    loss: Loss,
    gradients: Sequence[Tensor],
    shape: Sequence[int],
    *,
    method: str,
    labels: Tensor | None = None,
    steps: int | None = None,
    restarts: int = 1,
    smoothness: float = 1e-2,
    lower: float = 0.0,
    upper: float = 1.0,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> GradientInversion:
    """Reconstruct a batch of ``shape`` (examples, …) from the ``gradients`` of ``loss`` on it.

    ``method`` is

    ``"dlg"``
        the squared distance of gradients is minimised by L-BFGS over inputs and soft labels at once (Zhu, Liu
        and Han 2019); the loss must take class probabilities as targets, as cross-entropy does;
    ``"idlg"``
        the same with the labels inferred first (:func:`infer_labels`);
    ``"geiping"``
        the angle between gradients and the total variation of the images, weighted by ``smoothness``, are
        minimised by Adam on the signs, within [lower, upper] (Geiping et al. 2020); this one survives deeper
        networks and a clipped gradient.

    ``labels`` may be given where they are known. The best of ``restarts`` is returned. The model is used in
    the mode it is in; its parameters, its buffers and the global random state stay as they are.
    """
    how = _validate.choice("method", method, ("dlg", "idlg", "geiping"))
    count = _validate.count("examples in shape", shape[0], 1)
    seen = tuple(each.detach() for each in gradients)
    weights = _trained(model)
    if [each.shape for each in seen] != [each.shape for each in weights]:
        needed = "one for each trained parameter of the model, of its shape"
        raise InvalidValue("gradients", len(seen), needed)
    told = labels
    if how != "dlg" and told is None:
        told = infer_labels(seen, batch_size=count)
    generator = torch.Generator().manual_seed(_validate.count("seed", seed))
    tried: list[GradientInversion] = []
    with undisturbed(model, seed):
        for _ in range(_validate.count("restarts", restarts, 1)):
            start = torch.rand(tuple(shape), generator=generator, dtype=weights[0].dtype)
            start = (lower + (upper - lower) * start).to(weights[0].device)
            if how == "geiping" and told is not None:
                total = 600 if steps is None else _validate.count("steps", steps, 1)
                ends = (lower, upper)
                tried.append(_by_angle(model, loss, seen, start, told, total, smoothness, ends, progress))
            else:
                total = 100 if steps is None else _validate.count("steps", steps, 1)
                tried.append(_by_distance(model, loss, seen, start, told, total, generator, progress))
    return min(tried, key=lambda each: each.distance)


def psnr(image: Tensor, truth: Tensor, *, span: float = 1.0) -> float:
    """The peak signal-to-noise ratio in decibels; images that nobody would take for the same have below 10.

    >>> round(psnr(torch.zeros(4), torch.full((4,), 0.1)), 6)
    20.0
    """
    error = float(((image.double() - truth.double()) ** 2).mean())
    return float("inf") if error == 0 else float(10 * torch.log10(torch.tensor(span**2 / error)).item())


def _trained(model: nn.Module) -> tuple[nn.Parameter, ...]:
    return tuple(each for each in model.parameters() if each.requires_grad)


def _scale(bias: Tensor, count: int) -> float:
    """By what a gradient of the last bias seems to be multiplied; 1 where it cannot be told."""
    negative = bias[bias < 0]
    if not 0 < len(negative) < len(bias):
        return 1.0
    found = -float(negative.sum()) / (1 - len(negative) / len(bias))
    return 1.0 if count > len(bias) and found > _UNSCALED else found


def _by_distance(
    model: nn.Module,
    loss: Loss,
    seen: tuple[Tensor, ...],
    start: Tensor,
    labels: Tensor | None,
    steps: int,
    generator: torch.Generator,
    progress: Callable[[int], None] | None,
) -> GradientInversion:
    guess = start.clone().requires_grad_(True)
    variables = [guess]
    soft: Tensor | None = None
    if labels is None:
        classes = model(guess.detach()).shape[1]
        drawn = torch.randn(len(start), classes, generator=generator, dtype=start.dtype)
        soft = drawn.to(start.device).requires_grad_(True)
        variables.append(soft)
    length = float(torch.stack([(each.double() ** 2).sum() for each in seen]).sum()) or 1.0
    optimizer = torch.optim.LBFGS(variables, lr=1.0, max_iter=4, line_search_fn="strong_wolfe")

    def distance() -> Tensor:  # relative, so that a small gradient does not look like one that was reached
        told: Any = labels if soft is None else soft.softmax(dim=1)
        made = torch.autograd.grad(loss(model(guess), told), _trained(model), create_graph=True)
        return torch.stack([((a - b) ** 2).sum() / length for a, b in zip(made, seen, strict=True)]).sum()

    def closure() -> Tensor:
        optimizer.zero_grad()
        found = distance()
        found.backward(inputs=variables)  # type: ignore[no-untyped-call]
        return found

    reached = float("inf")
    kept, kept_labels = start, labels
    for step in range(steps):
        optimizer.step(closure)  # type: ignore[no-untyped-call]
        now = float(distance().detach())
        if now < reached:
            reached, kept = now, guess.detach().clone()
            kept_labels = labels if soft is None else soft.detach().argmax(dim=1)
        if progress is not None:
            progress(step + 1)
        if not now < float("inf") or now < 1e-12:
            break
    if kept_labels is None:
        kept_labels = torch.zeros(len(start), dtype=torch.long)
    return GradientInversion(kept, kept_labels, reached)


def _by_angle(
    model: nn.Module,
    loss: Loss,
    seen: tuple[Tensor, ...],
    start: Tensor,
    labels: Tensor,
    steps: int,
    smoothness: float,
    ends: tuple[float, float],
    progress: Callable[[int], None] | None,
) -> GradientInversion:
    guess = start.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([guess], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=1e-3)
    length = torch.sqrt(torch.stack([(each**2).sum() for each in seen]).sum()).clamp_min(1e-30)
    reached, kept = float("inf"), start
    for step in range(steps):
        made = torch.autograd.grad(loss(model(guess), labels), _trained(model), create_graph=True)
        dot = torch.stack([(a * b).sum() for a, b in zip(made, seen, strict=True)]).sum()
        own = torch.sqrt(torch.stack([(a**2).sum() for a in made]).sum()).clamp_min(1e-30)
        angle = 1 - dot / (own * length)
        (gradient,) = torch.autograd.grad(angle + smoothness * _variation(guess), guess)
        if step % _CHECKED == 0 or step == steps - 1:
            now = float(angle.detach())
            if now < reached:
                reached, kept = now, guess.detach().clone()
            if progress is not None:
                progress(step + 1)
        guess.grad = gradient.sign()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            guess.clamp_(*ends)
    return GradientInversion(kept, labels, reached)


def _variation(images: Tensor) -> Tensor:
    """The mean absolute difference of neighbouring pixels; 0 for inputs that are no images."""
    if images.dim() < 3:
        return images.new_zeros(())
    across = (images[..., :, 1:] - images[..., :, :-1]).abs().mean()
    return across + (images[..., 1:, :] - images[..., :-1, :]).abs().mean()
