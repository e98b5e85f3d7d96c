"""What a provider declares of its records, sealed with them: the clean room holds the records to it."""
