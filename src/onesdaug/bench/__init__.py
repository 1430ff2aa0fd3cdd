"""This machine's own numbers: what a view costs here, where the time goes, and how far that is from the limit."""
