"""Images on disk become uint8 arrays: folders, zips, split files and the registry."""
