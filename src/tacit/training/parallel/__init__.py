"""Several processes, sharded parameters, and threads that share a model."""
