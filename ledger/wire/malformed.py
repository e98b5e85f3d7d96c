"""The one validation error of the trust boundary: input that breaks a rule of its format, with the field and the rule.

:mod:`ledger.verifier` has an error of its own, because that file must run alone; :mod:`ledger.log.verification` turns
it into this one.
"""

from __future__ import annotations


class Malformed(ValueError):  # noqa: N818 - the word for what is refused, not a kind of error
    """Input that breaks a rule of its format, or that does not prove what it claims.

    Attributes:
        field: the place in the input, as a dotted path (``plan.sampler.probability``); empty for the whole.
        rule: the rule it breaks, one plain sentence without a full stop.
    """

    def __init__(self, field: str, rule: str) -> None:
        """Name the field and the rule."""
        super().__init__(f"{field}: {rule}" if field else rule)
        self.field = field
        self.rule = rule

    def under(self, prefix: str) -> Malformed:
        """The same error seen from the enclosing object."""
        return Malformed(f"{prefix}.{self.field}" if self.field else prefix, self.rule)
