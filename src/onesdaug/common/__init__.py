"""What every room needs: whole files, provenance, devices, weights from the hub. Imports nothing but errors."""
