"""Views on disk: folder jobs, the manifest and the content-keyed store."""
