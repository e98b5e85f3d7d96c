"""The book: the single writer of a log and the readers beside it.

A command passes four stops: :mod:`ledger.book.prepare` (read it, attach its prices), :mod:`ledger.commands.decide` (a
pure decision on the current state), :mod:`ledger.book.batch` (append what was decided) and :mod:`ledger.book.publish`
(sign the checkpoint, commit, answer). :mod:`ledger.book.group_commit` runs all but the commit in the writer's thread, a
second thread commits where more commands wait, and :mod:`ledger.book.book` is what callers use.
"""
