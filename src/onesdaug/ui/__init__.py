"""`onesdaug ui`: a web page on this machine to look at views, try them on few-shot tasks, and tune them."""
