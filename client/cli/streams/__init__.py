"""Commands about streams: ``epsilon dataset advance`` and ``epsilon stream``."""
