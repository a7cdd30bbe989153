"""The scattering transform: against a direct computation in space, and the properties it promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.errors import InvalidValue
from tacit.training.networks.scattering import Scattering

Array = NDArray[np.float64]


def images(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def bell(u: Array, v: Array, along: float, across: float) -> Array:
    return np.asarray(np.exp(-((u / along) ** 2 + (v / across) ** 2) / 2) / (2 * math.pi * along * across))


def periodic(sides: tuple[int, int], fill: object) -> NDArray[np.complex128]:
    """A function of the plane, wrapped onto a grid: sampled widely, and added where places coincide."""
    total = np.zeros(sides, complex)
    rows, columns = np.meshgrid(*(np.arange(side, dtype=float) for side in sides), indexing="ij")
    for up in range(-4, 5):
        for left in range(-4, 5):
            total += fill(columns + left * sides[1], rows + up * sides[0])  # type: ignore[operator]
    return total


def convolved(signal: Array, kernel: NDArray[np.complex128]) -> NDArray[np.complex128]:
    total = np.zeros(signal.shape, complex)
    for row, column in np.ndindex(*signal.shape):
        total += signal[row, column] * np.roll(kernel, (row, column), (0, 1))
    return total


def morlet(sides: tuple[int, int], scale: int, angle: float, orientations: int) -> NDArray[np.complex128]:
    along, frequency = 0.8 * 2**scale, 0.75 * math.pi / 2**scale
    across = along * orientations / 4

    def turned(x: Array, y: Array) -> tuple[Array, Array]:
        return np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x

    plain = periodic(sides, lambda x, y: bell(*turned(x, y), along, across))
    wave = periodic(
        sides,
        lambda x, y: bell(*turned(x, y), along, across) * np.exp(1j * frequency * turned(x, y)[0]),
    )
    return np.asarray(wave - wave.sum() / plain.sum() * plain)


def slow(image: Array, scales: int, orientations: int) -> list[Array]:
    """Maps in the order of the module, up to one factor per order, by sums over pixels at full resolution."""
    step = 2**scales
    height, width = image.shape
    long = [-(-side // step) * step + 2 * step for side in image.shape]
    before = [(total - side) // 2 for total, side in zip(long, image.shape, strict=True)]
    after = [total - side - start for total, side, start in zip(long, image.shape, before, strict=True)]
    padded = np.pad(image, list(zip(before, after, strict=True)), mode="reflect")
    sides = (long[0], long[1])
    places = [
        start + (side - 1) / 2 + step * (np.arange(side // step) - (side // step - 1) / 2)
        for start, side in zip(before, (height, width), strict=True)
    ]

    def smooth(values: Array, every: int) -> Array:
        lines = []
        for centres, length in zip(places, sides, strict=True):
            gap = centres[:, None] - np.arange(0, length, every)
            spread = 0.8 * 2 ** (scales - 1)
            weight = np.exp(-(((gap + length * np.arange(-4, 5).reshape(-1, 1, 1)) / spread) ** 2) / 2).sum(0)
            lines.append(weight / weight.sum(1, keepdims=True))
        return np.asarray(lines[0] @ values @ lines[1].T)

    angles = [math.pi * turn / orientations for turn in range(orientations)]
    first: list[Array] = []
    second: list[Array] = []
    for scale in range(scales):
        every = 2**scale
        sizes = [
            np.abs(convolved(padded, morlet(sides, scale, angle, orientations)))[::every, ::every]
            for angle in angles
        ]
        first += [smooth(size, every) for size in sizes]
        for coarser in range(scale + 1, scales):
            ratio = coarser - scale
            for size in sizes:
                for angle in angles:
                    filtered = convolved(size, morlet(size.shape, ratio, angle, orientations))
                    second.append(smooth(np.abs(filtered)[:: 2**ratio, :: 2**ratio], 2**coarser))
    return [smooth(padded, 1), *first, *second]


@pytest.mark.parametrize(
    ("shape", "scales", "orientations"), [((8, 8), 2, 4), ((9, 12), 2, 3), ((16, 16), 3, 2), ((5, 4), 1, 6)]
)
def test_equals_sums_over_pixels(shape: tuple[int, int], scales: int, orientations: int) -> None:
    image = images(1, *shape, dtype=torch.float64)
    module = Scattering(shape, scales=scales, orientations=orientations)
    fast = module(image)[0].numpy()
    expected = np.stack(slow(image[0].numpy(), scales, orientations))
    assert fast.shape == expected.shape == (module.paths, *module.map_shape)
    np.testing.assert_allclose(fast[0], expected[0], rtol=1e-9)
    gain = fast[1, 0, 0] / expected[1, 0, 0]
    assert 0.5 < gain < 1.5
    ones = 1 + scales * orientations
    np.testing.assert_allclose(fast[1:ones], gain * expected[1:ones], rtol=1e-8)
    np.testing.assert_allclose(fast[ones:], gain**2 * expected[ones:], rtol=1e-8)


@pytest.mark.parametrize(
    ("shape", "scales", "orientations", "order", "maps"),
    [
        ((28, 28), 2, 8, 2, (81, 7, 7)),
        ((28, 28), 2, 8, 1, (17, 7, 7)),
        ((28, 28), 3, 6, 2, (127, 3, 3)),
        ((32, 32), 2, 8, 2, (81, 8, 8)),
        ((30, 21), 1, 4, 2, (5, 15, 10)),
    ],
)
def test_shapes(
    shape: tuple[int, int], scales: int, orientations: int, order: int, maps: tuple[int, int, int]
) -> None:
    module = Scattering(shape, scales=scales, orientations=orientations, order=order)
    assert (module.paths, *module.map_shape) == maps
    assert module(images(3, *shape)).shape == (3, *maps)
    assert module(images(0, *shape)).shape == (0, *maps)
    assert module(images(3, 2, *shape)).shape == (3, 2 * maps[0], *maps[1:])


def test_order_one_is_the_first_part_of_order_two() -> None:
    rows = images(4, 28, 28)
    first, second = Scattering(order=1)(rows), Scattering(order=2)(rows)
    torch.testing.assert_close(second[:, : first.shape[1]], first)


def test_channels_are_transformed_one_by_one() -> None:
    rows, module = images(2, 3, 28, 28), Scattering()
    parts = [module(rows[:, channel]) for channel in range(3)]
    torch.testing.assert_close(module(rows), torch.cat(parts, 1))


def test_each_image_by_itself() -> None:
    rows, module = images(70, 28, 28), Scattering()
    together = module(rows)
    alone = torch.cat([module(row[None]) for row in rows])
    torch.testing.assert_close(together, alone, rtol=1e-6, atol=1e-7)
    swapped = rows.clone()
    swapped[10:] = math.nan
    spoilt = module(swapped)
    torch.testing.assert_close(spoilt[:10], together[:10], rtol=1e-6, atol=1e-7)
    assert spoilt[10:].isnan().all()


def test_moving_by_the_stride_moves_the_maps() -> None:
    image = torch.zeros(1, 40, 40, dtype=torch.float64)
    image[:, 14:22, 14:22] = images(1, 8, 8, dtype=torch.float64)
    module = Scattering((40, 40))
    still, moved = module(image), module(image.roll((4, -4), (1, 2)))
    torch.testing.assert_close(moved[..., 1:, :-1], still[..., :-1, 1:], rtol=1e-9, atol=1e-12)
    assert (moved - still).abs().max() > 0.01


def test_a_small_move_changes_little() -> None:
    image = torch.zeros(1, 28, 28)
    image[:, 8:20, 8:20] = images(1, 12, 12)
    moved = image.roll(1, 2)
    module = Scattering(scales=3)
    change = (module(moved) - module(image)).norm() / module(image).norm()
    assert change < 0.2 < 0.5 < (moved - image).norm() / image.norm()


def test_mirrored_images_give_mirrored_maps() -> None:
    image = images(1, 28, 28, dtype=torch.float64)
    module = Scattering(order=1)
    angles = module(image)[:, 1:9]
    mirrored = module(image.flip(2))[:, 1:9].flip(3)
    torch.testing.assert_close(mirrored[:, [0, *range(7, 0, -1)]], angles, rtol=1e-6, atol=1e-8)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.sampled_from([(16, 16), (17, 24), (28, 28)]),
    st.integers(1, 3),
    st.integers(1, 8),
    st.sampled_from(["noise", "one pixel", "flat", "waves"]),
    st.integers(0, 9),
)
def test_distances_never_grow(
    shape: tuple[int, int], scales: int, orientations: int, kind: str, seed: int
) -> None:
    module = Scattering(shape, scales=scales, orientations=orientations)
    first, second = images(2, *shape, seed=seed, dtype=torch.float64)
    if kind == "one pixel":
        second = first.clone()
        second[shape[0] // 2, seed] += 5
    elif kind == "flat":
        second = first + seed
    elif kind == "waves":
        second = first + torch.cos(0.7 * (seed + 1) * torch.arange(shape[1], dtype=torch.float64) / 2)
    step = 2**scales
    gap = (first - second).numpy()
    long = [-(-side // step) * step + 2 * step for side in shape]
    before = [(total - side) // 2 for total, side in zip(long, shape, strict=True)]
    widths = [(start, total - side - start) for start, total, side in zip(before, long, shape, strict=True)]
    bound = np.linalg.norm(np.pad(gap, widths, mode="reflect"))
    change = torch.linalg.vector_norm(module(first[None]) - module(second[None])).item()
    assert change <= bound * (1 + 1e-9)


def test_flat_images_have_only_a_mean() -> None:
    maps = Scattering()(torch.full((1, 28, 28), 0.5))
    torch.testing.assert_close(maps[:, 0], torch.full((1, 7, 7), 0.5))
    assert maps[:, 1:].abs().max() < 1e-6


def test_waves_answer_at_their_own_angle() -> None:
    place = torch.arange(28.0)
    wave = torch.cos(0.75 * math.pi * place)
    upright, lying = wave.expand(28, 28), wave[:, None].expand(28, 28)
    maps = Scattering()(torch.stack([upright, lying]))[:, 1:9, 3, 3]
    assert maps.argmax(1).tolist() == [0, 4]
    assert maps[0, 0] > 10 * maps[0, 4]


def test_nothing_to_train_and_nothing_to_save() -> None:
    module = Scattering()
    assert list(module.parameters()) == []
    assert module.state_dict() == {}
    rows = images(2, 28, 28).requires_grad_()
    assert not module(rows).requires_grad


def test_precision_follows_the_input() -> None:
    rows, module = images(3, 28, 28), Scattering()
    exact = module(rows.double())
    assert exact.dtype == torch.float64
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 2e-2)):
        maps = module(rows.to(dtype))
        assert maps.dtype == dtype
        torch.testing.assert_close(maps.double(), exact, rtol=tolerance, atol=tolerance)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(module(rows).double(), exact, rtol=1e-6, atol=1e-6)


def test_bad_arguments() -> None:
    for wrong in ({"scales": 0}, {"scales": 1.5}, {"orientations": 0}, {"orientations": True}, {"order": 3}):
        with pytest.raises(InvalidValue):
            Scattering((28, 28), **wrong)
    for shape in ((28,), (28, 28, 1), 28, (28.0, 28), (4, 28)):
        with pytest.raises(InvalidValue):
            Scattering(shape)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="fewer scales"):
        Scattering((28, 28), scales=4)


def test_bad_input() -> None:
    module = Scattering()
    with pytest.raises(InvalidValue, match="255"):
        module(torch.zeros(2, 28, 28, dtype=torch.uint8))
    with pytest.raises(InvalidValue, match="floating-point tensor"):
        module(np.zeros((2, 28, 28)))
    for shape in ((28, 28), (2, 32, 32), (1, 2, 3, 28, 28)):
        with pytest.raises(InvalidValue, match="shape"):
            module(torch.zeros(*shape))


def test_shown_with_its_settings() -> None:
    assert repr(Scattering()) == "Scattering((28, 28), scales=2, orientations=8, order=2)"
