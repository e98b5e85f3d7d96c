"""Commands that ask a service: ``epsilon charge``, ``contract``, ``dataset`` and the others."""
