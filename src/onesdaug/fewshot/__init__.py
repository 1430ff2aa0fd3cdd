"""Few-shot learning: heads, episodes, feature banks, evaluation."""
