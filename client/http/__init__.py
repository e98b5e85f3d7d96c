"""HTTP on the client's side: base URLs, endpoints, retries, problems and access tokens."""
