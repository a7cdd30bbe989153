"""Private gradient boosting over binned features."""
