"""Find out on the user's own data whether views help, which, and what the original should weigh."""
