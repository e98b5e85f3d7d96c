"""The one error of the trust boundary: input that is not what it must be, told by field and rule.

It is the verifier's own, because that file must run alone.
"""

from ledger.verifier import Malformed

__all__ = ["Malformed"]
