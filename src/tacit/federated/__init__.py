"""Federated learning: clients keep their rows, a server learns from what they send over Flower."""
