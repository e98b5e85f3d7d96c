"""The mark in a model's weights, and the one form in which weights are searched for marks."""
