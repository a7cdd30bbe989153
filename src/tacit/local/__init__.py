"""Local differential privacy: every person randomizes their own value, and nobody else need be trusted."""
