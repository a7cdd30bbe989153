"""Federated learning over Flower: a strategy that is private, and a mod for its clients.

    strategy = tacit.federated.private(FedAvg(), plan, ledger)     # the server
    app = ClientApp(mods=[tacit.federated.clipped])                # the clients

The same apps run in one process (:func:`run_in_process`), in Flower's simulation and in its deployment of
SuperLink and SuperNodes. Flower carries the messages; clipping, noise, accounting and secure aggregation
are of :mod:`tacit.federated`.
"""

from tacit._extras import needed as _needed

with _needed("Federations over Flower"):
    from tacit.federated.flower.mod import Clipped, clipped
    from tacit.federated.flower.process import ProcessGrid, run_in_process
    from tacit.federated.flower.silos import promised
    from tacit.federated.flower.strategy import PrivateStrategy, private

__all__ = ["Clipped", "PrivateStrategy", "ProcessGrid", "clipped", "private", "promised", "run_in_process"]
