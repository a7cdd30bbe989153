"""Private linear models: the losses, the solver, and the places where noise can enter."""

__all__: list[str] = []
