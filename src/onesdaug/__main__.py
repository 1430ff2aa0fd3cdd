"""`python -m onesdaug` is the `onesdaug` command."""

from onesdaug.cli import main

main()
