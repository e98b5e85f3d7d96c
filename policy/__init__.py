"""What may be done: documents read strictly, levels, contracts and every decision with its reasons. Pure."""
