"""What the API sends and documents: views of the book as JSON, responses and OpenAPI schemas."""
