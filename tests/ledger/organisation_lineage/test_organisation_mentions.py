"""What people read of an organisation: its name, and its DID where that is needed."""

import pytest

from ledger.organisation_lineage.organisation_mentions import OrganisationMentions


def test_two_of_one_name_are_told_apart() -> None:
    """By their DIDs, always; a name moves no cursor."""
    names = {"did:web:a": "Bank", "did:web:b": "Bank", "did:web:c": "Mill\x1b[2J", "did:web:e": "Bank (did:web:a)"}
    mentions = OrganisationMentions(names)
    said = [mentions.text(f"did:web:{one}") for one in "aabccd"]
    assert said[:3] == ["Bank (did:web:a)", "Bank (did:web:a)", "Bank (did:web:b)"]
    assert said[3:] == ["Mill?[2J (did:web:c)", "Mill?[2J (did:web:c)", "did:web:d"]
    assert [mentions.text("did:web:e") for _ in range(2)] == ["Bank (did:web:a) (did:web:e)"] * 2


@pytest.mark.parametrize(
    "name",
    [
        *("bank-a", "BANK-A", "bank-a ", " bank-a", "b  a", "DID:web:bank-a"),
        *("b\N{CYRILLIC SMALL LETTER A}nk-a", "bank-a\N{NO-BREAK SPACE}", "bank\N{NON-BREAKING HYPHEN}a"),
        *("bank-a\N{HANGUL FILLER}", "bank-a\N{ZERO WIDTH SPACE}"),
    ],
)
def test_a_name_that_may_be_mistaken_has_its_did_each_time(name: str) -> None:
    """However it resembles another's; a plain name has it once."""
    mentions = OrganisationMentions({"did:web:a": "bank-a", "did:web:b": name, "did:web:c": "Mill & Sons, Ltd"})
    assert [mentions.text("did:web:b") for _ in range(2)] == [f"{name} (did:web:b)"] * 2
    assert [mentions.text("did:web:c") for _ in range(2)] == ["Mill & Sons, Ltd (did:web:c)", "Mill & Sons, Ltd"]
