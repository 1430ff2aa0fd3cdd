"""The kinds of studies that come with the package: each file or folder here is one, named as in `kind = "…"`."""
