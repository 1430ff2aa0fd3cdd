"""Pictures and pages from results."""
