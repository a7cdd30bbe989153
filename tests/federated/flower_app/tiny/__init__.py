"""A Flower app of the tests."""
