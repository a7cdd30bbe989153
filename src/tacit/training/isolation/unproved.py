"""The signal that a pass is not proved to keep its examples apart."""


class Unproved(Exception):
    """The proof does not cover this pass over a batch: its examples are computed one at a time instead."""


class Changed(Unproved):
    """A model or loss that was proved before now does something else: its parameters are used elsewhere."""
