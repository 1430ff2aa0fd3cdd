"""The training loop and its time budget, shared by every network trained here; a leaf, as `statistics`."""
