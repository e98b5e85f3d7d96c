"""A table as a reader may have one: thirty columns, spaces in their names, text, and empty cells."""

from __future__ import annotations

from typing import Final

COLUMNS: Final = (
    "Case no",
    "Admission date",
    *(f"Value {number}" for number in range(24)),
    "Sex",
    "Insurance class",
    "Weight kg",
    "Readmitted in 30 days",
)


def own_table(records: int) -> str:
    """The table in CSV; its first value tells the last column."""
    rows = [
        (
            *(
                f"C{one}",
                "2026-01-31",
                *(str(one * (7 + place) % 11 - 5) for place in range(23)),
                str(one * 577 % 1_009),
            ),
            *(("F", "M", "")[one % 3], "ABC"[one % 3], ("71.5", "NA", "")[one % 3], ("No", "Yes")[one * 7 % 11 > 5]),
        )
        for one in range(records)
    ]
    return "\n".join(",".join(one) for one in (COLUMNS, *rows)) + "\n"
