"""Layers of Stable Diffusion in forms that a compiler and a GPU run faster; each computes the same function."""
