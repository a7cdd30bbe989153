"""The GAN attack: a malicious participant of collaborative learning makes images of others' classes.

Hitaj, Ateniese and Pérez-Cruz (2017): the shared model serves as discriminator. The adversary trains a
generator until the model takes its images for the victim's class, then puts those images into its own
training data under a class of their own, so that the victim's next update has to tell them from the real
ones, and teaches the generator what is still missing.
"""

from __future__ import annotations

from collections.abc import Callable

from tacit import _validate
from tacit._extras import needed

with needed("Attacks by generators"):
    import torch
    from torch import Tensor, nn

    from tacit.attacks.gradients import undisturbed

__all__ = ["GanAdversary", "small_generator"]


def small_generator(shape: tuple[int, ...], *, codes: int = 32, width: int = 128) -> nn.Module:
    """A generator of inputs of ``shape`` with values in [0, 1], from normal codes."""
    size = 1
    for each in shape:
        size *= each
    return nn.Sequential(
        nn.Linear(codes, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2),
        nn.Linear(width, size), nn.Sigmoid(), nn.Unflatten(1, shape),
    )  # fmt: skip


class GanAdversary:
    """A participant that pretends to help, and learns what the examples of class ``victim`` look like.

    ``fake`` is the class under which it hands in its images: one that nobody else uses. Every round, call
    :meth:`observe` with the shared model, then train on :meth:`poison` as on data of one's own.

    >>> adversary = GanAdversary((1, 4, 4), victim=0, fake=2, codes=4, seed=1)
    >>> judge = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    >>> before = adversary.observe(judge, steps=1)
    >>> after = adversary.observe(judge, steps=20)
    >>> after < before, tuple(adversary.samples(5).shape)
    (True, (5, 1, 4, 4))
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        victim: int,
        fake: int,
        codes: int = 32,
        rate: float = 2e-3,
        generator: nn.Module | None = None,
        seed: int = 0,
    ) -> None:
        self.victim, self.fake = _validate.count("victim", victim), _validate.count("fake", fake)
        self.codes = _validate.count("codes", codes, 1)
        self._random = torch.Generator().manual_seed(_validate.count("seed", seed))
        if generator is None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                generator = small_generator(tuple(shape), codes=self.codes)
        self.generator = generator
        self._optimizer = torch.optim.Adam(generator.parameters(), lr=_validate.positive("rate", rate))

    def samples(self, count: int) -> Tensor:
        """Images that the generator makes now."""
        with torch.no_grad():
            made: Tensor = self.generator(self._drawn(count))
        return made

    def observe(self, model: nn.Module, *, steps: int = 50, batch_size: int = 64) -> float:
        """Train the generator against the shared ``model``, which stays as it is; returns its last loss."""
        loss = torch.zeros(())
        score: Callable[[Tensor, Tensor], Tensor] = nn.CrossEntropyLoss()
        with undisturbed(model, self._random.initial_seed()):
            for _ in range(_validate.count("steps", steps, 1)):
                images = self.generator(self._drawn(batch_size))
                wanted = torch.full((batch_size,), self.victim)
                loss = score(model(images), wanted)
                found = torch.autograd.grad(loss, tuple(self.generator.parameters()))
                for weight, gradient in zip(self.generator.parameters(), found, strict=True):
                    weight.grad = gradient
                self._optimizer.step()
        return float(loss.detach())

    def poison(self, count: int) -> tuple[Tensor, Tensor]:
        """Images of the generator with the label ``fake``, to train on before the next update is sent."""
        return self.samples(count), torch.full((count,), self.fake)

    def _drawn(self, count: int) -> Tensor:
        return torch.randn(count, self.codes, generator=self._random)
