"""Commands that call a service: ``epsilon charge``, ``contract``, ``dataset`` and the others."""
