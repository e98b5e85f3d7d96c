"""The one error of the trust boundary: input that is not what it must be, told by field and rule."""

from __future__ import annotations


class Malformed(ValueError):  # noqa: N818 - the glossary's word for what is refused unread, not a kind of error
    """Input that breaks a rule of its format; nothing of it is recorded and it may be sent again.

    Attributes:
        field: where in the input, as a dotted path (``plan.sampler.probability``); empty for the whole.
        rule: the rule it breaks, one plain sentence without a full stop.
    """

    def __init__(self, field: str, rule: str) -> None:
        """Name the field and the rule."""
        super().__init__(f"{field}: {rule}" if field else rule)
        self.field = field
        self.rule = rule

    def under(self, prefix: str) -> Malformed:
        """The same fault seen from the enclosing object."""
        return Malformed(f"{prefix}.{self.field}" if self.field else prefix, self.rule)
