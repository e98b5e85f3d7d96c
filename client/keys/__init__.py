"""Private keys and encryption: signers, data keys, HPKE envelopes and sealed models."""
