"""What people read of an organisation: its name, and its DID where that is needed."""

from ledger.organisation_lineage.organisation_mentions import OrganisationMentions


def test_two_of_one_name_are_told_apart() -> None:
    """By their DIDs, always; a name moves no cursor."""
    names = {"did:web:a": "Bank", "did:web:b": "Bank", "did:web:c": "Mill\x1b[2J", "did:web:e": "Bank (did:web:a)"}
    mentions = OrganisationMentions(names)
    said = [mentions.text(f"did:web:{one}") for one in "aabccd"]
    assert said[:3] == ["Bank (did:web:a)", "Bank (did:web:a)", "Bank (did:web:b)"]
    assert said[3:] == ["Mill?[2J (did:web:c)", "Mill?[2J", "did:web:d"]
    assert [mentions.text("did:web:e") for _ in range(2)] == ["Bank (did:web:a) (did:web:e)"] * 2
