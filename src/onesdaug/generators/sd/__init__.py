"""Stable Diffusion 1.5 + IP-Adapter: loading, its image tokens, and faster forms of its layers (`fast`)."""
