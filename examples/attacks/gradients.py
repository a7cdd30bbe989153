"""Gradient inversion: images from the gradients that a participant of collaborative learning sends.

A participant computes the gradient of one image. The server sees it and looks for an image with the same
gradient (Zhu, Liu and Han 2019, with the label read off first as in Zhao, Mopuri and Bilen 2020): it finds
the participant's own. Clipping alone changes the length of a gradient and hides nothing from an attack that
compares directions (Geiping et al. 2020); Gaussian noise does. Each ε is that of one gradient, at δ = 10⁻⁵.

Labels are tested on their own, for they leak longer: clipping keeps the signs of the last bias.

Prints a table, and writes attack_gradients.png to out/.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from showing import EPSILONS, Array, arguments, digits, images, printed, saved, title_of
from torch import Tensor, nn

from tacit import mechanisms
from tacit.attacks.gradients import gradients_of, infer_labels, invert_gradients, psnr

CLIP_NORM = 1.0
DELTA = 1e-5
Sent = tuple[Tensor, ...]


def clipped(gradients: Sent, epsilon: float | None, seed: int) -> Sent:
    """The gradient clipped to CLIP_NORM, with Gaussian noise for one participant more or less."""
    length = float(torch.sqrt(torch.stack([(each**2).sum() for each in gradients]).sum()))
    short = [each * min(1.0, CLIP_NORM / length) for each in gradients]
    if epsilon is None:
        return tuple(short)
    noise = mechanisms.Gaussian(CLIP_NORM, epsilon, DELTA, random_state=seed)
    flat = np.concatenate([each.numpy().ravel() for each in short]).astype(np.float64)
    parts = torch.split(torch.from_numpy(np.asarray(noise(flat))).float(), [each.numel() for each in short])
    return tuple(part.reshape(each.shape) for part, each in zip(parts, short, strict=True))


def sent(gradients: Sent, protection: str, seed: int) -> Sent:
    """What the server sees under a protection."""
    if protection == "unprotected":
        return gradients
    kinds = {"clipped": None, **{title_of(each): each for each in EPSILONS if each is not None}}
    return clipped(gradients, kinds[protection], seed)


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__, argv)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    pictures, y = digits(400)
    first = [int(np.flatnonzero(y == digit)[0]) for digit in (0, 3, 5, 7)]
    order = np.array(first + [place for place in range(len(y)) if place not in first])
    pictures, y = pictures[order], y[order]
    inputs, labels = torch.from_numpy(pictures).float(), torch.from_numpy(y)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Sigmoid(), nn.Linear(64, 10))
    loss = nn.CrossEntropyLoss()
    count = 1 if given.quick else 4
    protections = ["unprotected", "clipped", *(title_of(each) for each in EPSILONS if each is not None)]
    shown: list[list[Array]] = [[pictures[place] for place in range(count)]]
    rows = []
    for protection in protections:
        found, ratios = [], []
        for place in range(count):
            one = slice(place, place + 1)
            seen = sent(gradients_of(model, loss, inputs[one], labels[one]), protection, place)
            method = "idlg" if protection == "unprotected" else "geiping"
            made = invert_gradients(
                model, loss, seen, (1, 8, 8), method=method, seed=place, smoothness=1e-3,
                steps=5 if given.quick else None,
            )  # fmt: skip
            found.append(made.inputs[0].numpy().astype(np.float64))
            ratios.append(psnr(made.inputs[0].clamp(0, 1), inputs[place]))
        right = []
        for place in range(10 if given.quick else 100):
            one = slice(place, place + 1)
            seen = sent(gradients_of(model, loss, inputs[one], labels[one]), protection, place)
            right.append(int(infer_labels(seen, batch_size=1)[0]) == y[place])
        shown.append(found)
        rows.append((protection, f"{np.mean(ratios):.1f} dB", f"{np.mean(right):.0%}"))
    printed(
        "Gradient inversion: one image of 8 × 8 pixels, a network of two layers",
        ("gradient", "likeness of images (PSNR)", "labels found (10% by chance)"),
        rows,
    )
    figure = images(
        [[row[place] for row in shown] for place in range(count)],
        ["private image", *protections],
        [f"image {place + 1}" for place in range(count)],
        about="Images from gradients",
    )
    saved(figure, given.out, "attack_gradients.png")


if __name__ == "__main__":
    main()
