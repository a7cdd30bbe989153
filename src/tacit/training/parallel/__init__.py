"""Parallel training: several processes, sharded parameters, and threads that share a model.

:mod:`.distributed` has the processes of a run and what they exchange; :mod:`.sharding` has models whose
parameters FSDP2 keeps in parts; :mod:`.turns` keeps two threads from training one model at once.
"""

__all__: list[str] = []
