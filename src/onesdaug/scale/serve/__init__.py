"""`onesdaug serve`: views and few-shot answers over HTTP, on Ray Serve."""
