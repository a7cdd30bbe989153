"""Models in which examples mix, and the usual repair."""

from __future__ import annotations

import copy
import math

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from tacit.errors import GuaranteeVoid, InvalidValue

_REPAIR = "Call tacit.training.replace_batchnorm(model), which puts GroupNorm in its place."


def check_model(model: nn.Module) -> None:
    """Refuse a model whose layers let one example change another's gradient.

    Clipping bounds what an example adds to the sum through its own gradient. It bounds nothing
    when the example also enters the gradients of others, so these are refused, by name and with
    the repair: BatchNorm and SyncBatchNorm that normalise by the batch, InstanceNorm that tracks
    running statistics while training, Embedding with ``scale_grad_by_freq`` or ``max_norm``, and
    a model with nothing to train. BatchNorm in evaluation mode uses fixed statistics and passes.

    A model of your own that mixes examples in its ``forward`` is found when it runs: every pass is proved to
    keep them apart (:mod:`tacit.training.isolation`). See Yousefpour et al. 2021 (Opacus), section 3, for
    the same rule.

    >>> from torch import nn
    >>> check_model(nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4)))
    >>> check_model(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    Traceback (most recent call last):
    ...
    tacit.errors.InvalidValue: layer '1' must be free of statistics over the batch, got BatchNorm1d. ...
    """
    if not isinstance(model, nn.Module):
        raise InvalidValue("model", type(model), "a torch.nn.Module")
    for name, layer in model.named_modules():
        if isinstance(layer, torch.jit.ScriptModule):
            raise InvalidValue(
                f"layer {name!r}" if name else "the model", _Word(type(layer).__name__),
                "a module whose layers can be watched and whose attributes can be put back",
                "Pass the module it was made from; torch.compile is understood.",
            )  # fmt: skip
        if isinstance(layer, _NormBase | nn.Embedding | nn.EmbeddingBag):
            _check_layer(f"layer {name!r}" if name else "the model", layer)
    trained = False
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not parameter.is_floating_point():
            raise InvalidValue(
                f"parameter {name!r}", parameter.dtype, "real", "Keep real and imaginary part apart."
            )
        trained |= parameter.requires_grad
    if not trained:
        raise InvalidValue(
            "model",
            _Word(type(model).__name__),
            "a module with a parameter to train",
            "Set requires_grad on at least one parameter.",
        )


_UNSOUND = "_tacit_fault"


def mark_unsound(model: nn.Module, fault: Exception) -> None:
    """Note on a model, and on every copy made of it, that a run with a fault has changed its weights."""
    for layer in model.modules():
        layer.__dict__[_UNSOUND] = str(fault)


def check_sound(model: nn.Module) -> None:
    """Refuse a model, or one with a part, that a run with a fault has changed."""
    for layer in model.modules():
        if _UNSOUND in layer.__dict__:
            raise unsound("A run that trained this model", layer.__dict__[_UNSOUND])


def unsound(what: str, fault: Exception | str) -> GuaranteeVoid:
    """The refusal to promise anything about a run in which a fault was found."""
    return GuaranteeVoid(
        f"{what} has no guarantee, as a fault was found in it: {fault}",
        "Make the model anew, from weights that are not of this run; what was charged stays charged.",
    )


def _check_layer(where: str, layer: nn.Module) -> None:
    kind = _Word(type(layer).__name__)
    if isinstance(layer, _BatchNorm) and (layer.training or layer.running_mean is None):
        raise InvalidValue(where, kind, "free of statistics over the batch", _REPAIR)
    if isinstance(layer, _NormBase) and layer.track_running_stats and layer.training:
        raise InvalidValue(
            where, kind, "free of running statistics of the data", "Set track_running_stats=False."
        )
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.scale_grad_by_freq:
        raise InvalidValue(where, kind, "free of scaling by counts", "Set scale_grad_by_freq=False.")
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
        raise InvalidValue(
            where, kind, "free of weights changed by the words looked up", "Set max_norm=None."
        )


def replace_batchnorm(model: nn.Module, groups: int = 32) -> nn.Module:
    """A copy of the model with GroupNorm where BatchNorm was.

    Each BatchNorm of c channels becomes a GroupNorm of gcd(c, ``groups``) groups, which normalises
    every example by itself, and so adds nothing to the sensitivity (Wu and He 2018; used for DP-SGD
    by De et al. 2022). Scale and shift are kept when they are there; running statistics are
    dropped. The model given is not changed, and the copy has no other difference.

    >>> from torch import nn
    >>> replace_batchnorm(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)), groups=4)[1]
    GroupNorm(4, 8, eps=1e-05, affine=True...)
    """
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1:
        raise InvalidValue("groups", groups, "a whole number, 1 or more")
    model = copy.deepcopy(model)
    made: dict[int, nn.Module] = {}
    if isinstance(model, _BatchNorm):
        return _group_norm(model, groups)
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if isinstance(child, _BatchNorm):
                parent._modules[name] = made.setdefault(id(child), _group_norm(child, groups))
    return model


def _group_norm(layer: _BatchNorm, groups: int) -> nn.GroupNorm:
    if layer.num_features == 0:
        raise InvalidValue(
            "model",
            _Word(type(layer).__name__),
            "built before BatchNorm is replaced",
            "Call the model once, so that its lazy layers know their width.",
        )
    new = nn.GroupNorm(math.gcd(layer.num_features, groups), layer.num_features, layer.eps, layer.affine)
    if layer.affine:
        new.weight, new.bias = layer.weight, layer.bias
    return new.train(layer.training)


class _Word(str):
    """Text shown without quotes in a message."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
