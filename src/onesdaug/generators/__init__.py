"""Networks that draw: the Generator protocol and what stands behind it."""
