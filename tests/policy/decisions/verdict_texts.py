"""Every sentence that a verdict on the cases says: ``python -m tests.policy.decisions.verdict_texts`` writes them down.

By code, each with its source, and whether the check passed. People read them, so a change of one is looked at. Digests
and keys change with the documents of the scene: of them only how long they are is written down.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ledger.domain.gate import Check

WRITTEN: Final = Path(__file__).with_suffix(".json")
_KEY: Final = re.compile(r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Z])[\w-]{43}(?![\w-])")
_DIGEST: Final = re.compile(r"\b[0-9a-f]{16,64}\b")
_PLACE: Final = re.compile(r"\(line \d+, column \d+\)")

Texts = dict[str, dict[str, list[list[str]]]]


def texts_of(checks: Iterable[Check]) -> Texts:
    """The sentences of checks and their sources, by code and by whether they passed."""
    found: Texts = {}
    for check in sorted({(one.code, not one.passed, _masked(one.text), one.source) for one in checks}):
        code, failed, text, source = check
        found.setdefault(code, {}).setdefault("failed" if failed else "passed", []).append([text, source])
    return found


def _masked(text: str) -> str:
    named = _KEY.sub("<key>", _PLACE.sub("<place>", text))
    return _DIGEST.sub(lambda at: f"<{len(at[0])} hex digits>", named)


def written() -> Texts:
    """What is written down."""
    read: Texts = json.loads(WRITTEN.read_text("utf-8"))
    return read


def main() -> None:
    """Write down what the cases say now."""
    from tests.factories.decision_facts import decide
    from tests.policy.decisions.test_cases import CASES

    said = texts_of(check for kind, change, _ in CASES for check in decide(kind, change).checks)
    lines = [f'  "{code}": {_spelled(of)}' for code, of in said.items()]
    WRITTEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _spelled(of: dict[str, list[list[str]]]) -> str:
    parts = (
        f'    "{kind}": [\n' + ",\n".join(f"      {json.dumps(one)}" for one in said) + "\n    ]"
        for kind, said in of.items()
    )
    return "{\n" + ",\n".join(parts) + "\n  }"


if __name__ == "__main__":
    main()
