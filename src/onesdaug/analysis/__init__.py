"""What views do and what they could do: the forecast of their gain, their faithfulness and diversity."""
