"""Examples are kept apart: no example changes what another adds to the sum, and nothing of them is kept.

Four lines of defence, from the outside in:

1. :mod:`.checking` refuses models whose layers are known to mix examples, before anything runs.
2. **The proof**, of every pass of every step. :mod:`.recording` writes down each operation below autograd,
   :mod:`.confinement` sees to it that none runs elsewhere, and :mod:`.program` proves the trace: with the
   closed :mod:`.table` of :mod:`.rules` for :mod:`.operations`, each given its :mod:`.calls`; with the
   :mod:`.places` of the examples in memory; and with traces of tiny batches, of which :mod:`.growth` says
   whether they are the same program. A pass that is not proved (:mod:`.unproved`) is computed one example at
   a time, where there is nobody to mix with. :mod:`.state` puts back what model and loss hold,
   in :mod:`.slots` and :mod:`.containers` of every class, and :mod:`.ambient` settings; it refuses changed
   :mod:`.positions` of what cannot be put back, and knows the tensors that are :mod:`.pinned` as globals.
   What was compiled runs as :mod:`.written`.
3. :mod:`.trial` tries the routes of :mod:`tacit.training.gradients` before they are used, as a guard against
   faults of that engine.
4. :mod:`.selftest` compares a few examples together and alone, ten times in a run.
"""

__all__: list[str] = []
