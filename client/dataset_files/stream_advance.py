"""One advance of a stream: what is past its age retires, a file is sealed, and the next slice opens with it.

Everything is done again by the same call, which finds what is done and does the rest: the sealed folder has its name
when it is whole or not at all, the opening is one command whose id is made of its bytes, and so is each retirement.
An opening that was refused is another command when it is tried again, since what stood against it may be gone.
Which period is open, which is over and which slices are past their age, the service says by the log's time; the clock
of this machine decides nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from client.dataset_files.seal import Records, SealedDataset, seal_dataset
from client.dataset_files.slice_records import EarlierSlices, SliceRecords, read_slice, source_digest
from client.http.problems import Refused
from client.keys.signer import Signer
from client.service.answers import Answer
from client.service.service import Service
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

COMMITMENT_KEY: Final = "commitments.key"
_TERMS: Final = ("delta", "epsilon", "load", "prices", "relation", "rule", "slack", "unit", "unit_records_max")
_REFUSED: Final = (
    "Refusal logged as entry {index}, and no slice opened: change what is named above and give the same command again."
)
_MISSED: Final = "missed"
_PAST_AGE: Final = "past_age"


@dataclass(frozen=True, slots=True)
class Advanced:
    """What an advance did.

    Attributes:
        left_out: records of the file that may not be in the slice.
        retired: the slices that were past their age.
        missed: the periods that no slice can open for any more.
    """

    period: str
    partition: str
    folder: Path
    answer: Answer
    left_out: int
    retired: tuple[str, ...]
    missed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamAdvance:
    """Advances one stream of a provider, whose slices lie in a folder.

    Attributes:
        read: opens the file's records once they are needed.
        leaves_out: records that may not be in the slice are left out; else the first is refused.
        reason: why the budget is above the recommended one, if it is.
    """

    service: Service
    signer: Signer
    actor: str
    dataset: str
    slices: Path
    leaves_out: bool = False
    reason: str = ""

    def advance(self, file: Path, read: Callable[[], Records], period: str = "") -> Advanced:
        """Retire, seal and open. Raises: Malformed, Refused, Unreachable, OSError.

        Args:
            file: the records of the period, which are read by ``read``.
            period: whose slice opens; the last one that is over if not given.
        """
        if self.slices.exists() and not self.slices.is_dir():
            raise Malformed("--slices", f"{self.slices} is no folder: name the one that the slices lie in")
        stream: Any = self.service.stream(self.actor, self.dataset)
        name = self._period(stream, period)
        retired = self._retire(stream)
        opened = any(slice_["period"] == name and slice_["status"] != _MISSED for slice_ in stream["slices"])
        sealed = self._sealed(stream, name, file, read, opened=opened)
        stated = read_slice(sealed)
        answer = self._open(sealed, stated["body"])
        missed = tuple(str(slice_["period"]) for slice_ in stream["slices"] if slice_["status"] == _MISSED)
        ref = f"{self.actor}/{self.dataset}/{name}"
        return Advanced(name, ref, sealed, answer, int(stated["left_out"]), retired, missed)

    def _period(self, stream: Any, given: str) -> str:  # noqa: ANN401 - the service's JSON
        """The period whose slice opens, or has opened. Raises: Malformed."""
        name = given or stream["last_complete"]
        if name is None:
            raise Malformed("--period", "is missing: the periods of this stream are named by hand")
        known = {str(slice_["period"]): str(slice_["status"]) for slice_ in stream["slices"]}
        if stream["last_complete"] is None or name in stream["may_open"] or known.get(name, _MISSED) != _MISSED:
            return c.name(name, "--period")
        may = " or ".join(stream["may_open"]) or "none until the next one begins"
        if given and known.get(name) != _MISSED:
            raise Malformed("--period", f"{name} cannot open now: what may is {may}")
        rule = f"{name} was missed, and stays missed: what may open now is {may}; its records may go there (--period)"
        raise Malformed("--period", rule)

    def _retire(self, stream: Any) -> tuple[str, ...]:  # noqa: ANN401 - the service's JSON
        past = tuple(str(slice_["partition"]) for slice_ in stream["slices"] if slice_["status"] == _PAST_AGE)
        for ref in past:
            name = f"retire-{self.dataset}-{ref.rpartition('/')[2]}"
            try:
                self.service.submit(self.signer, self.actor, "retirement", {"partition": ref}, name)
            except Refused as refused:
                # Another call retired it meanwhile: it takes nothing new, as was wanted.
                if refused.code != Code.CONFLICT.word:
                    raise
        return past

    def _sealed(
        self,
        stream: Any,  # noqa: ANN401 - the service's JSON
        name: str,
        file: Path,
        read: Callable[[], Records],
        *,
        opened: bool,
    ) -> Path:
        """The sealed folder of the period, made if it is not there. Raises: Malformed, OSError."""
        folder, source = self.slices / name, source_digest(file)
        body = self._body(stream, name)
        earlier = read_slice(folder)
        if earlier.get("source") == source and (opened or earlier.get("body") == body):
            return folder
        if opened:
            why = f"is not the file that {name} was sealed from: its slice is open, and late records go to the next"
            elsewhere = f"of {name} is sealed already, and not in {self.slices}: name the folder that has its slice"
            raise Malformed("FILE", why if earlier else elsewhere)
        if earlier:
            # It never opened: what was sealed under its key was shown to no one.
            shutil.rmtree(folder)
        self.slices.mkdir(parents=True, exist_ok=True)
        others = {
            str(slice_["period"]): self.slices / str(slice_["period"])
            for slice_ in stream["slices"]
            if slice_["partition"]
        }
        seen = SliceRecords(
            EarlierSlices({name: path for name, path in others.items() if path.is_dir()}),
            source,
            body,
            appearances_max=int(stream["appearances_max"]),
            records_min=int(stream["slice"]["records_min"]),
            leaves_out=self.leaves_out,
        )
        ref, key = f"{self.actor}/{self.dataset}/{name}", self.slices / COMMITMENT_KEY
        made: SealedDataset = seal_dataset(read(), ref, folder, None, key, beside=seen)
        return made.folder

    def _body(self, stream: Any, name: str) -> c.Object:  # noqa: ANN401 - the service's JSON
        """What opens the slice, but for the commitments. Of its records it says only that they are enough."""
        terms = stream["slice"]
        stated: c.Object = {term: terms[term] for term in _TERMS if terms.get(term) is not None}
        if self.reason:
            stated["reason"] = self.reason
        return {
            **stated,
            "data_key": f"{self.dataset}-{name}",
            "dataset": self.dataset,
            "partition": name,
            "provider": self.actor,
            "records": terms["records_min"],
        }

    def _open(self, folder: Path, body: c.Object) -> Answer:
        """Store the commitments and open the slice; again, the first answer. Raises: Refused, Unreachable, OSError."""
        documents = [path.read_bytes() for path in sorted((folder / "share").glob("*.bin"))]
        digests: list[c.Json] = [self.service.put_document(self.signer, document).document for document in documents]
        whole: c.Object = {**body, "commitments": digests}
        name = self._unrefused(f"slice-{c.digest(c.dump(whole))[:32]}")
        try:
            return self.service.submit(self.signer, self.actor, "partition", whole, name)
        except Refused as refused:
            if refused.index is not None:
                refused.next_step = _REFUSED.format(index=refused.index)
            raise

    def _unrefused(self, name: str) -> str:
        """The first of a command's ids that is not a refusal's: what was refused may be permitted later."""
        ids = (name if number == 1 else f"{name}-{number}" for number in count(1))
        return next(id_ for id_ in ids if not self._refused(id_))

    def _refused(self, name: str) -> bool:
        try:
            return not self.service.decision(name)["permit"]
        except Refused as refused:
            if refused.code != Code.NOT_FOUND.word:
                raise
            return False
