"""Named architectures, fixed features for images, and trained networks as files."""
