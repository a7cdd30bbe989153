"""Fixed features: public functions of one example, computed once, on which a small private model is trained.

======================  ======  =========================================================================
``efficientnet-lite0``  image   1280 numbers of a network trained on ImageNet; needs its two packages
``scattering``          image   wavelets; needs nothing
``minilm``              text    384 numbers of a sentence transformer; needs its package and ``tacit[llm]``
======================  ======  =========================================================================

:mod:`.fixed` says what features promise, and why they cost nothing; :mod:`.registry` knows them by name;
:mod:`.cache` keeps rows on disk.
"""

from tacit.training.features.cache import FeatureCache
from tacit.training.features.fixed import FixedFeatures, ImageFeatures
from tacit.training.features.registry import made, names, register

__all__ = ["FeatureCache", "FixedFeatures", "ImageFeatures", "made", "names", "register"]
