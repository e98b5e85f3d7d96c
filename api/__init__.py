"""The service's doors: HTTP routes over the book, key release, and the commands that start them."""
