"""What views do and could do: the forecast of their gain, faithfulness, diversity, and the terms of the theory."""
