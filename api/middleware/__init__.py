"""What surrounds every request: limits, metrics and the service's own log."""
