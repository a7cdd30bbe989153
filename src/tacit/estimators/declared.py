"""What has to be declared about a target; see :mod:`tacit.data.declared`."""

from tacit.data.declared import declared_classes, declared_target_bounds

__all__ = ["declared_classes", "declared_target_bounds"]
