"""A book carried to another place: backup archives, restore and move between databases."""
