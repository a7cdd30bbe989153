"""How good a model is on private rows: each row's answer, tallies of them, noisy figures with intervals."""
