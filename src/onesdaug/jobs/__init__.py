"""Folder jobs: views of every image in a folder, the manifest that makes a rerun go on, and reading them back."""
