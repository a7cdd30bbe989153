"""Per-example gradients: their norms, and the sum of the clipped ones, without storing each.

The road of a batch through this room, from :func:`~.engine.clipped_gradients`:

1. :mod:`.routes` decides, from two tiny batches that :mod:`.watching` observes, how each parameter is served.
2. :mod:`.passes` runs one forward and backward pass, of which :mod:`.tape` records for each layer its input
   and output gradient. Layers that attend or recur are computed by :mod:`.rewrites` and :mod:`.recurrence`,
   in the memory order of :mod:`.layout`; parameters outside any layer are followed by :mod:`.direct`.
3. :mod:`.rules` turn input and output gradient of a layer into :mod:`.pieces` (of convolutions:
   :mod:`.convolution`), each the per-example gradients of one parameter, not written out; :mod:`.views` joins
   the views of an example.
4. What no rule serves, and what is not proved, goes through :mod:`.fallback`: ``vmap``, or a plain loop.
5. Pieces give their :mod:`.norms`; the clipping rule gives factors; pieces give the weighted sum, added up as
   :mod:`.sums` says.

Whether the pass kept its examples apart is proved next door, in :mod:`tacit.training.isolation`.
"""

__all__: list[str] = []
