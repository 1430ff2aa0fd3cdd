"""The paper's tables and figures: one declarative file each (`*.toml` beside this file), and the one runner."""
