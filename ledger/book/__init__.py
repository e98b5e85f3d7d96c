"""The book: the single writer of a log and the readers beside it.

A command passes four stops: :mod:`ledger.book.prepare` (read, verify the signature, compute the prices),
:mod:`ledger.commands.decide` (a pure decision on the current state), :mod:`ledger.book.batch` (decide and append in
one transaction) and :mod:`ledger.book.publish` (sign the checkpoint, give the receipt). :mod:`ledger.book.group_commit`
runs the last three in the writer's thread, and :mod:`ledger.book.book` is what callers use.
"""
