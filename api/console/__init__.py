"""The console: the service's own pages, which read the book as the API does and write nothing."""
