"""Reads that gather what several parts of the book say: newest entries, inbox, histories, curves and the register."""
