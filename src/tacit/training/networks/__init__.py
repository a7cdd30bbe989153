"""Networks by name: architectures, fixed features for images, settings, and trained networks in files."""

__all__: list[str] = []
