"""The thin HTTP client: signs commands, sends them, reads answers and problems. Nothing here opens a book."""
