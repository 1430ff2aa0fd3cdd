"""A frozen model, its views, and how their outputs become one."""
