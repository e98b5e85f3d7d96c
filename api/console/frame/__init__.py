"""What every page of the console has: templates, files, tables, figures, headers and the reader of the book."""
