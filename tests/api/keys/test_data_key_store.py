"""Data keys: fresh, private to their owner, and never told by accident."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pytest

from api.keys.data_key_store import FileKeyStore, KeyStore, KeyUnavailable, Secret
from client.keys.sealed_model import seal_deposit
from ledger.wire.malformed import Malformed

HOSPITAL = "did:web:hospital.example"


def test_a_created_key_is_read_back_from_a_private_file(tmp_path: Path) -> None:
    """The file has mode 0600, its folder 0700, and holds the 32 bytes."""
    store = FileKeyStore(tmp_path / "keys")
    made = store.create(HOSPITAL, "digits")
    read = store.data_key(HOSPITAL, "digits")
    assert read is not None
    assert read.reveal() == made.reveal()
    assert len(made.reveal()) == 32
    path = tmp_path / "keys" / HOSPITAL / "digits"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_keys_of_two_providers_with_one_name_are_two_keys(tmp_path: Path) -> None:
    """A key's identity is provider and name together."""
    store = FileKeyStore(tmp_path)
    first, second = store.create(HOSPITAL, "k"), store.create("did:web:clinic.example", "k")
    assert first.reveal() != second.reveal()


def test_a_key_is_never_replaced(tmp_path: Path) -> None:
    """Creating the same key twice fails and keeps the first."""
    store = FileKeyStore(tmp_path)
    made = store.create(HOSPITAL, "digits")
    with pytest.raises(FileExistsError):
        store.create(HOSPITAL, "digits")
    read = store.data_key(HOSPITAL, "digits")
    assert read is not None
    assert read.reveal() == made.reveal()


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "a/b", "", "/tmp/x", "a\x00b"])  # noqa: S108 - input only
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    """A name that is none is refused when written and unavailable when read."""
    store = FileKeyStore(tmp_path)
    with pytest.raises(Malformed):
        store.create(HOSPITAL, name)
    with pytest.raises(KeyUnavailable):
        store.data_key(HOSPITAL, name)


def test_a_missing_short_or_readable_key_is_unavailable(tmp_path: Path) -> None:
    """Each fault withholds the key, and tells which key."""
    store = FileKeyStore(tmp_path)
    with pytest.raises(KeyUnavailable, match=r"digits of did:web:hospital\.example cannot be read"):
        store.data_key(HOSPITAL, "digits")
    store.create(HOSPITAL, "digits")
    path = tmp_path / HOSPITAL / "digits"
    path.chmod(0o644)
    with pytest.raises(KeyUnavailable, match="may be read by others"):
        store.data_key(HOSPITAL, "digits")
    path.chmod(0o600)
    path.write_bytes(b"x" * 31)
    with pytest.raises(KeyUnavailable, match="does not have 32 bytes"):
        store.data_key(HOSPITAL, "digits")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A key file that is a symbolic link is unavailable."""
    store = FileKeyStore(tmp_path)
    store.create(HOSPITAL, "digits")
    (tmp_path / HOSPITAL / "other").symlink_to(tmp_path / HOSPITAL / "digits")
    with pytest.raises(KeyUnavailable):
        store.data_key(HOSPITAL, "other")


def test_authorise_only_holds_no_key() -> None:
    """The provider hands its keys over itself."""
    assert KeyStore().data_key(HOSPITAL, "digits") is None


def test_a_store_says_whose_keys_it_hands_out(tmp_path: Path) -> None:
    """Those of a provider that has a folder in it; the one that authorises only, nobody's."""
    store = FileKeyStore(tmp_path)
    store.create(HOSPITAL, "digits")
    assert (store.gives(HOSPITAL), store.gives(f"{HOSPITAL}x")) == (True, False)
    assert not KeyStore().gives(HOSPITAL)


def test_a_secret_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    """No way of printing, logging or pickling a secret shows a byte of it."""
    secret = Secret(b"0123456789abcdef0123456789abcdef")
    logging.getLogger("test").error("the key is %s, %r", secret, secret)
    for text in (repr(secret), str(secret), f"{secret}", f"{[secret]}", caplog.text):
        assert "0123" not in text
        assert "redacted" in text
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_the_first_envelope_kept_is_the_one_given(tmp_path: Path) -> None:
    """A second one, sealed by another process meanwhile, gives way; nobody else may read the file."""
    store = FileKeyStore(tmp_path)
    assert store.stored_envelope("release-1") is None
    assert store.store_envelope("release-1", b"first") == b"first"
    assert FileKeyStore(tmp_path).store_envelope("release-1", b"second") == b"first"
    assert store.stored_envelope("release-1") == b"first"
    kept = tmp_path / "released" / "release-1"
    assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [one.name for one in kept.parent.iterdir()] == ["release-1"]


def test_an_envelope_that_cannot_be_kept_is_not_given(tmp_path: Path) -> None:
    """Else the same command would get another one later."""
    store = FileKeyStore(tmp_path)
    (tmp_path / "released").write_text("in the way")
    with pytest.raises(KeyUnavailable, match="cannot be stored"):
        store.store_envelope("release-1", b"first")


@pytest.mark.parametrize("charge", ["deposit", "watermark", "run-1"])
def test_a_charge_named_like_a_secret_of_the_store_takes_no_place_of_it(tmp_path: Path, charge: str) -> None:
    """Its sealed models' keys lie beside the secrets, which are made at their first use, and stay what they are."""
    store, key = FileKeyStore(tmp_path), bytes(range(32))
    model = "ab" * 32
    deposit = store.deposit
    store.deposit_model_key(charge, model, seal_deposit(key, deposit, charge, model))
    secret = store.watermark_secret().reveal()
    again = FileKeyStore(tmp_path)
    assert again.model_key(charge, model).reveal() == key
    assert (again.deposit, again.watermark_secret().reveal()) == (deposit, secret)


@pytest.mark.parametrize("name", ["deposit", "watermark"])
def test_a_secret_of_the_store_that_is_cut_or_readable_by_others_is_none(tmp_path: Path, name: str) -> None:
    """Else keys of models' marks would follow from what anyone can guess."""
    store = FileKeyStore(tmp_path)
    path = tmp_path / "models" / name
    secret = {"deposit": lambda: store.deposit, "watermark": store.watermark_secret}[name]
    secret()
    path.chmod(0o644)
    with pytest.raises(KeyUnavailable, match=f"may be read by others: chmod 600 {name}"):
        secret()
    path.chmod(0o600)
    path.write_bytes(b"")
    with pytest.raises(KeyUnavailable, match="does not have 32 bytes"):
        secret()
