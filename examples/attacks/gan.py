"""The GAN attack: a participant of collaborative learning makes images of somebody else's class.

Hitaj, Ateniese and Pérez-Cruz (2017). Two participants train one network on digits. The victim alone has
the 3s. The adversary trains a generator against the shared network until the network takes its images for
3s, and hands them in under a class of their own, so that the victim's updates teach the generator what is
still missing.

Privacy for each image of the victim (its gradients clipped one by one, Gaussian noise on their sum, ε for all
rounds together at δ = 10⁻⁵) weakens what the generator can learn, down to noise at ε = 0.1. It is no
remedy at a large ε: what the images of a class have in common is no secret of any one of them.

Prints a table, and writes attack_gan.png to out/.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from showing import EPSILONS, Array, arguments, digits, images, printed, saved, title_of
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit import accounting, events
from tacit.attacks.gan import GanAdversary

VICTIM, FAKE = 3, 10
BATCH, RATE, CLIP_NORM, DELTA = 64, 0.3, 1.0, 1e-5


def victim_update(
    model: nn.Module, inputs: Tensor, labels: Tensor, noise: float, draw: torch.Generator
) -> None:
    """One step on a Poisson sample of the victim's images, with per-example clipping and noise on the sum.

    Without noise (``noise`` = 0) the step is that of ordinary training.
    """
    chosen = torch.rand(len(inputs), generator=draw) < BATCH / len(inputs)
    weights = dict(model.named_parameters())

    def loss(parameters: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        scores = functional_call(model, parameters, (image.unsqueeze(0),))
        return nn.functional.cross_entropy(scores, label.unsqueeze(0))

    held = {name: weight.detach() for name, weight in weights.items()}
    each = vmap(grad(loss), in_dims=(None, 0, 0))(held, inputs[chosen], labels[chosen])
    lengths = torch.sqrt(torch.stack([value.flatten(1).square().sum(1) for value in each.values()]).sum(0))
    factors = (CLIP_NORM / lengths).clamp(max=1.0) if noise else torch.ones_like(lengths)
    with torch.no_grad():
        for name, weight in weights.items():
            total = torch.einsum("n,n...->...", factors, each[name])
            total += noise * CLIP_NORM * torch.randn(weight.shape, generator=draw)
            weight.sub_(RATE * total / BATCH)


def played(inputs: Tensor, labels: Tensor, epsilon: float | None, rounds: int) -> tuple[Array, float]:
    """Images of the generator after the last round, and how often the shared network is right."""
    torch.manual_seed(1)
    draw = torch.Generator().manual_seed(2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 11))
    low, high = labels <= 4, labels > 4
    theirs, own = (inputs[low], labels[low]), (inputs[high], labels[high])
    noise = 0.0
    if epsilon is not None:
        share = BATCH / len(theirs[0])

        def event(multiplier: float) -> events.Event:
            return events.Repeat(events.PoissonSampled(share, events.Gaussian(multiplier)), rounds * 4)

        noise = accounting.calibrate(event, epsilon=epsilon, delta=DELTA)
    adversary = GanAdversary((8, 8), victim=VICTIM, fake=FAKE, seed=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(rounds):
        for _ in range(4):
            victim_update(model, *theirs, noise, draw)
        adversary.observe(model, steps=10)
        fakes, wrong = adversary.poison(BATCH // 2)
        for _ in range(2):
            some = torch.randint(len(own[0]), (BATCH,), generator=draw)
            loss = nn.functional.cross_entropy(
                model(torch.cat([own[0][some], fakes])), torch.cat([own[1][some], wrong])
            )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    with torch.no_grad():
        right = float((model(inputs).argmax(1) == labels).float().mean())
    return adversary.samples(64).numpy().astype(np.float64), right


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__, argv)
    torch.set_num_threads(1)
    pictures, y = digits(1797)
    inputs, labels = torch.from_numpy(pictures).float(), torch.from_numpy(y)
    truth = pictures[y == VICTIM].mean(axis=0)
    shown, rows = [[*pictures[y == VICTIM][:4], truth]], []
    for epsilon in EPSILONS:
        made, right = played(inputs, labels, epsilon, 3 if given.quick else 150)
        mean = made.mean(axis=0)
        likeness = np.corrcoef(mean.ravel(), truth.ravel())[0, 1]
        rows.append((title_of(epsilon), f"{right:.0%}", f"{likeness:.2f}"))
        shown.append([*made[:4], mean])
    printed(
        f"A generator of {VICTIM}s, made by a participant who has none",
        ("victim's updates", "accuracy of the shared network", "likeness to the mean 3"),
        rows,
    )
    figure = images(
        shown,
        ["", "", "", "", "mean"],
        ["private images", *map(title_of, EPSILONS)],
        about=f"Images of {VICTIM}s by a participant who has none",
    )
    saved(figure, given.out, "attack_gan.png")


if __name__ == "__main__":
    main()
