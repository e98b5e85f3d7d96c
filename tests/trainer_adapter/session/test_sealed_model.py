"""Level 2 from training to use: the model leaves no clean room but sealed, and opens in attested ones alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from client.http.access_tokens import CleanRoomCredentials
from client.http.problems import Refused
from client.keys.sealed_model import open_deposit, open_model, seal_deposit, seal_model
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.cli.evaluate import measure
from trainer_adapter.job.job_spec import Job
from trainer_adapter.run.checkpointing import CheckpointStore
from trainer_adapter.session.model_release import SealedContents

KEY = bytes(range(32))


@pytest.fixture
def sealed_place(tmp_path: Path) -> Iterator[Place]:
    """A place whose policy is of Level 2."""
    with open_place(tmp_path, level=2, model_release=False) as place:
        yield place


def test_a_model_of_level_2_is_measured_in_a_clean_room_of_its_own(sealed_place: Place) -> None:
    """Trained, kept sealed, opened by an entry; the accuracy is the trained model's."""
    job = sealed_place.job("run-1")
    report = sealed_place.run(job)
    folder = sealed_place.folder / "runs" / "run-1"
    assert (report.model, (folder / "model.safetensors").exists()) == ("", False)
    opened = measure(Job.load(job), sealed_place.service, lambda _: None)
    assert opened.accuracy == report.accuracy
    assert sealed_place.kinds()[-2:] == [("model_release", "policy_denied"), ("model_opening", "permitted")]


def test_each_opening_is_an_entry_of_its_own(sealed_place: Place) -> None:
    """Twice opened, twice on record, each for a fresh clean room."""
    job = sealed_place.job("run-1")
    sealed_place.run(job)
    for _ in range(2):
        measure(Job.load(job), sealed_place.service, lambda _: None)
    assert [kind for kind, _ in sealed_place.kinds()].count("model_opening") == 2


def test_another_model_does_not_open(sealed_place: Place) -> None:
    """One byte changed: it is no model that any key was deposited for, and none is handed over."""
    job = sealed_place.job("run-1")
    sealed_place.run(job)
    path = sealed_place.folder / "runs" / "run-1" / "model.sealed"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(Refused) as caught:
        measure(Job.load(job), sealed_place.service, lambda _: None)
    assert (caught.value.status, caught.value.code) == (503, "key_withheld")


def test_a_second_model_of_a_run_does_not_open(sealed_place: Place) -> None:
    """Sealed by the run's own clean room, its key deposited: what is in it is not what the post names."""
    path = sealed_place.job("run-1")
    path.write_text(f'{path.read_text()}\n[train.resume]\nkey = "../keys/run-1.room"\nevery_s = 0\n')
    sealed_place.run(path)
    job, service, file = Job.load(path), sealed_place.service, sealed_place.folder / "runs" / "run-1" / "model.sealed"
    identity = CheckpointStore(job).load_identity()
    assert identity is not None
    room = identity.signer
    sealed, key = seal_model(SealedContents(b"another", room).to_bytes(), job.id)
    own = service.as_caller(CleanRoomCredentials(room, job.log.origin, service.clock))
    name = c.digest(sealed)
    own.deposit_model_key(room, job.id, name, seal_deposit(key, own.deposit_key(), job.id, name))
    file.write_bytes(sealed)
    with pytest.raises(Malformed, match="is not the one model of charge run-1"):
        measure(job, service, lambda _: None)


def test_a_run_that_is_not_posted_has_nothing_to_open(sealed_place: Place) -> None:
    """No challenge is given for a charge that does not exist, or not for this caller."""
    with pytest.raises(Refused) as caught:
        sealed_place.service.challenge("run-9")
    assert caught.value.status == 404


def test_a_sealed_model_opens_with_its_own_key_for_its_own_charge() -> None:
    """Another key, another charge, or a byte changed opens nothing."""
    sealed, key = seal_model(b"weights", "run-1")
    assert open_model(sealed, key, "run-1") == b"weights"
    for wrong in ((sealed, KEY, "run-1"), (sealed, key, "run-2"), (sealed[:-1], key, "run-1"), (b"", key, "run-1")):
        with pytest.raises(Malformed, match="is not what charge"):
            open_model(*wrong)
    with pytest.raises(Malformed, match="no key of 32 bytes"):
        open_model(sealed, key[:16], "run-1")


def test_a_deposit_is_for_one_store_one_charge_and_one_model() -> None:
    """Whoever carries it can neither read it nor pass it off as another model's."""
    store, other = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    deposit = c.base64url(store.public_key().public_bytes_raw())
    model = c.digest(b"sealed")
    sealed = seal_deposit(KEY, deposit, "run-1", model)
    assert open_deposit(sealed, store, "run-1", model) == KEY
    for wrong in ((other, "run-1", model), (store, "run-2", model), (store, "run-1", c.digest(b"other"))):
        with pytest.raises(Malformed, match="does not open"):
            open_deposit(sealed, *wrong)
