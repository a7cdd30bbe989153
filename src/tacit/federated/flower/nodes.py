"""Nodes: which Flower node is which client of the plan."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Nodes"]


class Nodes:
    """The table of Flower's node ids and the plan's clients 0 … clients − 1.

    A node gets the next free number when the server first sees it and keeps it for the whole run, also when
    it goes away for a while. So a node is one client, never two, and its number says nothing of its rows.
    When all numbers are taken, further nodes are not asked to train: the plan promises its guarantee for at
    most ``clients`` clients. The table goes into the checkpoint, so that a server that was started again
    counts the same clients.

    >>> nodes = Nodes(2)
    >>> nodes.meet([71, 40, 99])
    >>> nodes.node_of(0), nodes.node_of(1), nodes.client_of(99)
    (40, 71, None)
    """

    def __init__(self, clients: int, known: Iterable[int] = ()) -> None:
        self.clients = clients
        self._nodes = list(dict.fromkeys(known))[:clients]
        self._clients = {node: client for client, node in enumerate(self._nodes)}

    def meet(self, present: Iterable[int]) -> None:
        """Number the nodes that were not seen before, while there are numbers left."""
        for node in sorted(set(present)):
            if node not in self._clients and len(self._nodes) < self.clients:
                self._clients[node] = len(self._nodes)
                self._nodes.append(node)

    def node_of(self, client: int) -> int | None:
        """The node of a client, or None while no node has its number."""
        return self._nodes[client] if client < len(self._nodes) else None

    def client_of(self, node: int) -> int | None:
        """The number of a node, or None for a node that has none."""
        return self._clients.get(node)

    @property
    def known(self) -> tuple[int, ...]:
        """The node ids in the order of their numbers."""
        return tuple(self._nodes)
