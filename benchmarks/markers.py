"""Tables that scripts write into documents: between `<!-- table: NAME -->` and `<!-- end of table -->`."""

from __future__ import annotations

from collections.abc import Mapping

END = "<!-- end of table -->"


def with_tables(document: str, tables: Mapping[str, str]) -> str:
    """The document with these tables in their places; what stands around them is left as it is."""
    for name, text in tables.items():
        begin = f"<!-- table: {name} -->"
        before, rest = document.split(begin, 1)
        document = f"{before}{begin}\n{text}\n{rest[rest.index(END) :]}"
    return document
