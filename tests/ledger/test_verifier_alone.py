"""The auditor's verifier, copied to an empty folder and run there by hand."""

from __future__ import annotations

import ast
import base64
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ledger import verifier
from tests.ledger.log.memory_log import KEY, Cosigner, Log, log_of
from tests.ledger.log.test_tiles import published

SOURCE = Path(verifier.__file__)
LOG = log_of(300)
WITNESS = Cosigner("witness.example/w1", 7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The verifier, and what an auditor was handed."""
    place = tmp_path_factory.mktemp("auditor")
    shutil.copy(SOURCE, place / "verifier.py")
    note = LOG.note(300)
    policy = f"log {KEY.vkey}\nwitness W {WITNESS.key.vkey}\nquorum W\n"
    texts = {
        "log.vkey": f"{KEY.vkey}\n",
        "policy": policy,
        "entry": LOG.entries[41].decode(),
        "other": "entry 42",
        "receipt": LOG.receipt(41, 300),
        "now": note,
        "cosigned": note + WITNESS.line(note),
        "kept": LOG.note(201),
        "proof": "".join(f"{base64.b64encode(one).decode()}\n" for one in LOG.consistency(201, 300)),
    }
    for name, text in texts.items():
        (place / name).write_text(text)
    return place


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The file by itself: -I keeps our tree and every PYTHON variable out."""
    return subprocess.run(
        [sys.executable, "-I", "verifier.py", *arguments], capture_output=True, text=True, check=False, cwd=folder
    )


def told(folder: Path, *arguments: str) -> dict[str, Any]:
    """What it tells programs."""
    done = run(folder, *arguments, "--json")
    assert done.stderr == ""
    known: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if known["ok"] else 7)
    return known


def test_it_imports_the_standard_library_and_cryptography() -> None:
    """Nothing else, at the top or in a function."""
    found = set()
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        if isinstance(node, ast.Import):
            found |= {one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(str(node.module).partition(".")[0])
    assert found - sys.stdlib_module_names == {"cryptography"}


def test_its_error_stays_inside() -> None:
    """The product calls the checks that raise through ``ledger.log``, which raises the error that all catch."""
    raising = re.compile(
        r"\b(?:(?:LogKey|WitnessKey|Note|Policy|Checkpoint)\.(?:parse|open)\(|signature_of\("
        r"|from ledger\.verifier import .*\b(?:verify_receipt|verify_tiles|check_extends|read_proof|read_bundle"
        r"|from_base64|to_text|signature_lines)\b)"
    )
    house = SOURCE.parent.parent
    rooms = ("api", "client", "epsilon_ledger", "ledger", "migrations", "trainer_adapter")
    files = {path.relative_to(house) for room in rooms for path in (house / room).rglob("*.py")}
    direct = {str(path) for path in files if raising.search((house / path).read_text())}
    assert direct == {"ledger/verifier.py", "ledger/log/witness_protocol.py"}


def test_what_holds(folder: Path) -> None:
    """Receipt, checkpoint and consistency, for people and for programs."""
    root = LOG.checkpoint(300).root.hex()
    head = {"log": KEY.origin, "ok": True, "root": root, "size": 300}
    assert told(folder, "receipt", "receipt", "entry", "--log", "log.vkey") == {**head, "index": 41}
    assert told(folder, "checkpoint", "now", "--log", "log.vkey") == {**head, "witnesses": []}
    assert told(folder, "checkpoint", "cosigned", "--policy", "policy") == {**head, "witnesses": ["W"]}
    assert told(folder, "consistency", "kept", "now", "proof", "--log", "log.vkey") == {**head, "kept": 201}
    assert told(folder, "consistency", "kept", "cosigned", "proof", "--policy", "policy") == {**head, "kept": 201}
    done = run(folder, "receipt", "receipt", "entry", "--log", "log.vkey")
    assert (done.returncode, done.stdout.count("\n"), root in done.stdout) == (0, 1, True)


def test_a_published_log(folder: Path) -> None:
    """From a folder as it is published; an older checkpoint, kept from before the witness came, is held against it."""
    for path, data in published(LOG).items():
        (folder / "public" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "public" / path).write_bytes(data)
    (folder / "public" / "checkpoint").write_text((folder / "cosigned").read_text())
    found = told(folder, "tiles", "public", "--policy", "policy", "--kept", "kept")
    assert (found["ok"], found["size"], found["entries"], found["kept"]) == (True, 300, 300, 201)
    words = run(folder, "tiles", "public", "--policy", "policy", "--kept", "kept").stdout
    assert words.endswith("; they begin with the 201 kept; all 300 are published\n")
    (folder / "public" / "tile" / "0" / "001.p" / "44").unlink()
    fault = told(folder, "tiles", "public", "--log", "log.vkey")["fault"]
    assert fault == "tile/0/001.p/44: is missing"


def _hostile(*since: object, charges: Sequence[object] = (), merged: Sequence[object] = ()) -> dict[str, Any]:
    """The proof of an account in a log whose operator enters anything: charges, a statement, and what came since."""
    request = {"root": "00" * 32, "size": len(charges)}
    stated = {"body": {"outcome": "permitted", "request": request}, "id": "stated", "kind": "statement"}
    entries = [json.dumps(one).encode() for one in (*charges, stated, *merged, *since)]
    log, size = Log(entries), len(charges)

    def proven(index: int) -> dict[str, str]:
        return {"entry": base64.b64encode(entries[index]).decode(), "receipt": log.receipt(index, len(entries))}

    mergers: list[Any] = [{"accounts": [], "merger": proven(size + 1 + place)} for place in range(len(merged))]
    later = range(size + 1 + len(merged), len(entries))
    shown = {"charges": [*map(proven, range(size))], "merged": mergers, "since": [*map(proven, later)]}
    empty = {"beside": [], "hidden": 0, "opened": [], "origin": None, "record": None, "salt": None, "siblings": []}
    about = {"holder": "global", "partition": "did:web:a.example/x/y", "statement": proven(size), "v": 1}
    return {**empty, **shown, **about}


CHARGE = {"body": {}, "id": "run", "kind": "charge"}
SETTLES_A_LIST = {"body": {"outcome": "posted", "request": {"charge": [1]}}, "id": "p", "kind": "post"}


@pytest.mark.parametrize(
    ("proof", "fault"),
    [
        (_hostile(charges=[{**CHARGE, "id": [1]}]), "charges[0].id: is of another type of JSON"),
        (_hostile({"body": {}, "id": "x", "kind": ["post"]}, charges=[CHARGE]), "since[0].kind: is of another type"),
        (_hostile(SETTLES_A_LIST, charges=[CHARGE]), "since[0]: is of another type of JSON"),
        (_hostile(charges=[CHARGE], merged=[{"body": {}, "id": "m", "kind": {}}]), "merged[0].merger.kind: is of"),
    ],
)
def test_entries_that_are_none_prove_no_account(folder: Path, proof: dict[str, Any], fault: str) -> None:
    """They are genuine entries of their log, and no book has such: the fault is named, with the exit code of one."""
    (folder / "hostile").write_text(json.dumps(proof))
    assert told(folder, "account", "hostile", "--log", "log.vkey")["fault"].startswith(fault)


def test_names_in_any_letters(folder: Path) -> None:
    """Are told, escaped where the terminal has no such letters; never a crash."""
    (folder / "wider").write_bytes((folder / "policy").read_bytes().replace(b" W", b" \xc3\x89\xff"))
    for encoding in ("ascii", "utf-8"):
        done = subprocess.run(
            [sys.executable, "verifier.py", "checkpoint", "cosigned", "--policy", "wider"],
            capture_output=True,
            check=True,
            cwd=folder,
            env={"PYTHONIOENCODING": encoding},
        )
        assert done.stdout.endswith((b"; cosigned by \\xc9\\udcff\n", b"; cosigned by \xc3\x89\\udcff\n"))


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ("receipt receipt other --log log.vkey", "receipt: does not prove the entry at index 41"),
        ("receipt now entry --log log.vkey", "receipt: is not a c2sp.org/tlog-proof@v1"),
        ("checkpoint now --policy policy", "checkpoint: lacks the cosignatures that the quorum W asks for"),
        ("consistency cosigned now proof --policy policy", "checkpoint: lacks the cosignatures that the quorum W"),
        ("checkpoint entry --log log.vkey", "checkpoint: is not a signed note"),
        ("checkpoint now --log entry", "vkey: must be 'name+id+key'"),
        ("checkpoint missing --log log.vkey", "missing: No such file or directory"),
        ("consistency now kept proof --log log.vkey", "checkpoint: is of 201 entries, and 300 were signed before"),
        ("consistency kept now log.vkey --log log.vkey", "proof: holds something that is not base64"),
        ("consistency kept now entry --log log.vkey", "proof: holds something that is not base64"),
        ("tiles . --log log.vkey", "checkpoint: is missing"),
        ("checkpoint verifier.py --log verifier.py", "verifier.py: has more than the 1024 bytes allowed"),
    ],
)
def test_what_does_not_hold(folder: Path, arguments: str, fault: str) -> None:
    """One plain sentence, and 7; the same sentence for programs."""
    done = run(folder, *arguments.split())
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (7, "", 1)
    assert done.stderr.startswith(fault)
    assert told(folder, *arguments.split())["fault"] == done.stderr.removesuffix("\n")


def test_an_error_is_one_line_of_what_is_printed(folder: Path) -> None:
    """What it quotes of a file could else erase the error on a terminal, and write that all holds in its place."""
    name = "\r\x1b[2K\x1b[1Gholds: all\nholds: all\u202e\u200b\u2028\x7f"
    done = run(folder, "checkpoint", name, "--log", "log.vkey")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (7, "", 1)
    assert done.stderr.removesuffix("\n").isprintable()
    assert done.stderr.startswith(r"\r\x1b[2K\x1b[1Gholds: all\nholds: all\u202e\u200b\u2028\x7f: No such file")
    told_too = run(folder, "checkpoint", name, "--log", "log.vkey", "--json").stdout
    assert json.loads(told_too)["fault"] == f"{name}: No such file or directory"


def test_wrong_arguments(folder: Path) -> None:
    """No key to trust is not a finding."""
    assert run(folder, "checkpoint", "now").returncode == 2
