"""Signing keys and profiles on disk: private, strict, and never half-read."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from sqlalchemy import make_url

from api.cli.settings import Settings
from api.server.http_server import check_loopback, listen
from client.keys.signer import Signer
from client.profile.profile import Profile, read_table
from client.service.service import Service
from ledger.crypto import detached_jws
from ledger.crypto.public_keys import PublicKey
from ledger.verifier import LogKey, WitnessKey
from ledger.wire.malformed import Malformed
from tests.factories.people import BANK_A, LOG


def test_a_saved_signer_signs_as_before(tmp_path: Path) -> None:
    """Saved and loaded, the key has the same id and its signatures verify."""
    signer = Signer.generate()
    signer.save(tmp_path / "bank.pem")
    loaded = Signer.load(tmp_path / "bank.pem")
    assert loaded.key_id == signer.key_id
    detached_jws.verify(loaded.sign(b'{"v":1}'), b'{"v":1}', PublicKey.parse(signer.jwk, "key", "Ed25519"))


def test_a_signer_s_file_is_private_and_never_replaced(tmp_path: Path) -> None:
    """The file has mode 0600, and a second key does not overwrite it."""
    path = tmp_path / "bank.pem"
    Signer.generate().save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        Signer.generate().save(path)


def test_a_signer_does_not_print_its_private_part() -> None:
    """Its representation is its key id."""
    signer = Signer.generate()
    assert repr(signer) == f"Signer({signer.key_id})"


def test_a_key_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """The sentence says what to do."""
    path = tmp_path / "bank.pem"
    Signer.generate().save(path)
    path.chmod(0o640)
    with pytest.raises(Malformed, match="chmod 600"):
        Signer.load(path)


def test_a_key_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    """An X25519 key and a text are no signing keys."""
    pem = X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for name, data in (("x25519.pem", pem), ("text.pem", b"hello")):
        path = tmp_path / name
        path.touch(mode=0o600)
        path.write_bytes(data)
        with pytest.raises(Malformed):
            Signer.load(path)


def _profile(folder: Path, change: str = "", serve: str = "") -> Path:
    log = LogKey("epsilon.example/ledger", Ed25519PrivateKey.generate().public_key().public_bytes_raw())
    path = folder / "profile.toml"
    path.write_text(
        'v = 1\n[client]\nservice = "http://127.0.0.1:8000"\nkey = "bank.pem"\n'
        f'actor = "did:web:bank-a.example"\nlog = "{log.vkey}"\nissuer = "https://login.example"\n{change}\n{serve}\n'
    )
    return path


_SERVE = (
    '[serve]\nbook = "book.sqlite"\nlog_key = "log.pem"\norigin = "epsilon.example/ledger"\n'
    'host = "127.0.0.1"\nport = 8000\n'
)
_ISSUERS = '[serve.issuers]\n"https://login.example" = "issuer.jwks"\n'


def test_a_byte_order_mark_is_no_part_of_a_profile(tmp_path: Path) -> None:
    """Some editors begin every file with one."""
    path = tmp_path / "profile.toml"
    path.write_bytes(b'\xef\xbb\xbfv = 1\n[client]\nname = "bank"\n')
    assert read_table(path, "client") == {"name": "bank"}


def test_a_profile_s_paths_are_relative_to_it(tmp_path: Path) -> None:
    """Both tables may stand in one file; each reader takes its own."""
    path = _profile(tmp_path, serve=_SERVE + _ISSUERS)
    assert Profile.load(path).key == tmp_path / "bank.pem"
    settings = Settings.load(path)
    assert (settings.book, settings.keys, settings.kept) == (f"sqlite:///{tmp_path}/book.sqlite", None, None)


def test_a_book_is_a_path_or_a_url(tmp_path: Path) -> None:
    """Any character a file name can have; a PostgreSQL URL with the one driver; and where its checkpoint is kept."""
    odd = _SERVE.replace("book.sqlite", "a?b#c%41.sqlite") + 'kept = "kept/checkpoint"\n'
    settings = Settings.load(_profile(tmp_path, serve=odd + _ISSUERS))
    assert make_url(settings.book).database == f"{tmp_path}/a?b#c%41.sqlite"
    assert settings.kept == tmp_path / "kept" / "checkpoint"
    away = _SERVE.replace("book.sqlite", "postgresql://writer@db.example/book")
    assert (
        Settings.load(_profile(tmp_path, serve=away + _ISSUERS)).book == "postgresql+psycopg://writer@db.example/book"
    )
    with pytest.raises(Malformed, match="must be an SQLite file or a PostgreSQL database, not mysql"):
        Settings.load(_profile(tmp_path, serve=_SERVE.replace("book.sqlite", "mysql://db.example/book") + _ISSUERS))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("unknown = 1", "client.unknown"),
        ('actor = "did:web:two.example"', "profile.toml"),
        ("[other]", "other"),
        ("not toml", "profile.toml"),
    ],
)
def test_a_profile_is_read_strictly(tmp_path: Path, change: str, field: str) -> None:
    """What is unknown, given twice or no TOML is refused by name."""
    with pytest.raises(Malformed) as caught:
        Profile.load(_profile(tmp_path, change))
    assert Path(caught.value.field).name == field


def test_a_profile_without_its_table_is_refused(tmp_path: Path) -> None:
    """A client's profile cannot start a service."""
    with pytest.raises(Malformed) as caught:
        Settings.load(_profile(tmp_path))
    assert Path(caught.value.field).name == "profile.toml"
    assert "serve" in caught.value.rule


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", "localhost", ""])  # noqa: S104 - input
def test_only_a_loopback_address_is_served(host: str) -> None:
    """Every other host is refused with the reason."""
    with pytest.raises(Malformed, match="loopback"):
        check_loopback(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1"])
def test_a_loopback_address_may_be_served(host: str) -> None:
    """Any address of the loopback network will do."""
    assert check_loopback(host) == host


_WITNESS = WitnessKey("witness.example/w1", bytes(range(32))).vkey
_PUBLIC = _SERVE.replace('"127.0.0.1"', '"0.0.0.0"') + 'production = true\nurl = "https://Ledger.example:443/"\n'


def test_in_production_a_service_listens_anywhere_behind_tls(tmp_path: Path) -> None:
    """With issuers and a URL of https, spelled as signatures bind it; outside production only on loopback."""
    settings = Settings.load(_profile(tmp_path, serve=_PUBLIC + _ISSUERS))
    assert (settings.host, settings.url, settings.production) == ("0.0.0.0", "https://ledger.example", True)  # noqa: S104
    assert settings.clock == tmp_path / "profile.clock"
    with closing(listen(settings.host, 0, anywhere=settings.production)) as listener:
        assert listener.getsockname()[0] == "0.0.0.0"  # noqa: S104


@pytest.mark.parametrize(
    ("was", "now", "field"),
    [
        ('url = "https://Ledger.example:443/"\n', "", "serve.url"),
        ("https://Ledger", "http://Ledger", "serve.url"),
        (":443/", ":443/?a=b", "serve.url"),
        (":443/", ":443/#a", "serve.url"),
        ("Ledger.example", "u:p@ledger.example", "serve.url"),
        ("true", '"true"', "serve.production"),
        ("https://login.example", "http://login.example", "serve.issuers.http://login.example"),
        ("https://login.example", "https://127.0.0.1:8100", "serve.issuers.https://127.0.0.1:8100"),
        ("https://login.example", "https://localhost", "serve.issuers.https://localhost"),
        ("https://login.example", "https://[::1]:1", "serve.issuers.https://[::1]:1"),
        ('"https://login.example" = "issuer.jwks"', "", "serve.issuers"),
    ],
)
def test_production_refuses_what_only_development_may(tmp_path: Path, was: str, now: str, field: str) -> None:
    """No plain HTTP, no issuer on this machine, and nothing is coerced."""
    assert was in _PUBLIC + _ISSUERS
    with pytest.raises(Malformed) as caught:
        Settings.load(_profile(tmp_path, serve=(_PUBLIC + _ISSUERS).replace(was, now)))
    assert caught.value.field == field


def test_in_production_a_witness_is_asked_over_tls(tmp_path: Path) -> None:
    """That it has seen more, which stops the service, bears no signature; a witness of this machine is as it was."""
    table = _PUBLIC + _ISSUERS + '[serve.witness_keys]\n"{}" = "{}"\n'
    for url in ("https://witness.example", "http://127.0.0.1:9000"):
        (witness,) = Settings.load(_profile(tmp_path, serve=table.format(url, _WITNESS))).witnesses
        assert str(witness.url) == url
    with pytest.raises(Malformed, match="must be an https URL") as caught:
        Settings.load(_profile(tmp_path, serve=table.format("http://witness.example", _WITNESS)))
    assert caught.value.field == "serve.witness_keys.http://witness.example"


@pytest.mark.parametrize("url", ["", "ftp://127.0.0.1", "127.0.0.1:8000", "http://"])
def test_a_service_has_an_http_url(url: str) -> None:
    """Anything else is refused before a request is made."""
    with pytest.raises(Malformed, match="http or https"):
        Service(url)


@pytest.mark.parametrize("field", ["service", "issuer"])
def test_an_organisation_sends_no_token_in_the_clear(tmp_path: Path, field: str) -> None:
    """Neither to the service nor to the issuer, unless they are on this machine."""
    lines = {"actor": BANK_A, "issuer": "https://login.example", "key": "k.pem", "log": LOG.vkey}
    lines |= {"service": "https://ledger.example", field: "http://elsewhere.example"}
    path = tmp_path / "bank.toml"
    path.write_text("v = 1\n[client]\n" + "\n".join(f'{name} = "{value}"' for name, value in lines.items()))
    with pytest.raises(Malformed, match=f"client.{field}: must be an https URL, or http on this machine"):
        Profile.load(path)
