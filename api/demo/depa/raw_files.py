"""The raw files of the scenario's three providers: made up here, or DEPA's own from a folder that is named.

Each is a table of people as that provider has them: icmr the tests, cowin the vaccinations, index the patients. What is
made up has the same columns and kinds as DEPA's files, and as much in it for a model to learn: people whose sample was
sequenced were mostly positive, and no other column says much.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

PEOPLE: Final = 2_119
"""Rows of each of DEPA's own files."""
FOLDER_VARIABLE: Final = "EPSILON_DEPA"
"""The environment variable that names a folder with DEPA's own files."""
NAMES: Final = ("icmr", "cowin", "index")
_SEQUENCED: Final = 503 / 2_119
_POSITIVE_ELSE: Final = 165 / 1_616
_AGES: Final = (57, 57, 63, 36)
_COLUMNS: Final = {
    "icmr": (
        "icmrnumber,icmr_patient_mobilenumber,srfnumber,a_icmr_test_type,a_icmr_test_result,a_test_ct_value,a_lab_id,"
        "a_sample_genetic_sequenced,a_sample_genetic_strain,pupdate"
    ),
    "cowin": (
        "cowin_registered_mobile,beneficiary_name,age,gender,id_verified,uhid,beneficiary_reference_id,vaccine_name,"
        "dose_1_date,d1_vaccinated_by,d1_vaccinated_at,dose_2_date,d2_vaccinated_by,d2_vaccinated_at,pupdate"
    ),
    "index": (
        "idcpatient,pname,pcnumber,srfnumber,icmrnumber,bucode,trbucode,commby,pstatus,statusuby,ureason,pahospital,"
        "tpahospital,htype,pbtype,pbquota,fdate,todate,pasymp,dsinfection,potravel,labcode,page,pgender,pstate,"
        "pdistrict,paddress,pzone,pward,ptaluka,pudate,distcode"
    ),
}


def raw_files(folder: Path, people: int = PEOPLE, seed: int = 0) -> tuple[dict[str, Path], str]:
    """The three files, by provider, and where they come from in words: made in ``folder`` unless another is named.

    Raises:
        FileNotFoundError: for a folder that is named and lacks one of them. OSError.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if not named:
        text = f"made up, {people} people; {FOLDER_VARIABLE}=folder takes DEPA's own files"
        return made_up(folder, people, Random(seed)), text  # noqa: S311 - no one's data
    whole = Path(named)
    held = whole / "data" if (whole / "data").is_dir() else whole
    files = {name: held / f"{name}.csv" for name in NAMES}
    for path in files.values():
        if not path.is_file():
            raise FileNotFoundError(f"{FOLDER_VARIABLE} names {named}, which has no {path.name}")
    return files, f"DEPA's own, of {named}"


def made_up(folder: Path, people: int, drawn: Random) -> dict[str, Path]:
    """The three files of so many people, in ``folder``. Raises: OSError."""
    phones = drawn.sample(range(100_000_000, 1_000_000_000), people)
    sequenced = [drawn.random() < _SEQUENCED for _ in phones]
    positive = [was_sequenced or drawn.random() < _POSITIVE_ELSE for was_sequenced in sequenced]
    sick = list(zip(phones, positive, sequenced, strict=True))
    makers: dict[str, Callable[[int, bool, bool, Random], list[object]]] = {
        "icmr": _test,
        "cowin": _vaccination,
        "index": _patient,
    }
    files = {}
    for name, make in makers.items():
        order = drawn.sample(sick, len(sick))
        files[name] = path = folder / f"{name}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            out = csv.writer(file)
            out.writerow(_COLUMNS[name].split(","))
            out.writerows(make(*person, drawn) for person in order)
    return files


def _test(phone: int, positive: bool, sequenced: bool, drawn: Random) -> list[object]:  # noqa: FBT001 - of a person
    number, srf = drawn.randrange(10**9, 10**10), drawn.randrange(10**11, 10**13)
    ct, lab = drawn.randint(10, 35), drawn.randrange(1, 2_000)
    return [number, phone, srf, "RT-PCR", int(positive), ct, lab, int(sequenced), int(sequenced), _date(drawn)]


def _vaccination(phone: int, _positive: bool, _sequenced: bool, drawn: Random) -> list[object]:  # noqa: FBT001 - of a person
    uhid = "-".join(f"{drawn.randrange(10**width):0{width}}" for width in (2, 4, 4, 4))
    first = [_date(drawn), f"ID{drawn.randrange(10**5)}", f"HOSPITAL {drawn.randrange(1_000)}"]
    second = [_date(drawn), "D2_Pending", "D2_Pending"]
    about = [f"PERSON {drawn.randrange(10**6)}", drawn.choice(_AGES), drawn.choice("FM"), "Passport", uhid]
    return [phone, *about, drawn.randrange(10**13, 10**14), drawn.choice((1, 2)), *first, *second, _date(drawn)]


def _patient(phone: int, _positive: bool, _sequenced: bool, drawn: Random) -> list[object]:  # noqa: FBT001 - of a person
    unit, hospital, room = f"BU{drawn.randrange(10**8)}", f"HOSPITAL {drawn.randrange(1_000)}", "KA_WARROOM_1"
    stay = [hospital, hospital, "HOSP", f"BEDCODE{drawn.randrange(999)}", "GOVERNMENT", _date(drawn), _date(drawn)]
    answers = [drawn.randrange(2) for _ in range(3)]
    place = ["KARNATAKA", "Bagalkot", f"ADDRESS {drawn.randrange(999)}", "ZONE1", drawn.randrange(198), "TALUKA1"]
    about = [drawn.randrange(10**8, 10**9), f"PERSON {drawn.randrange(10**6)}", phone, drawn.randrange(10**13), phone]
    cells = [*about, unit, unit, room, drawn.choice("AB"), room, f"R{drawn.randrange(9)}", *stay, *answers]
    return [*cells, drawn.randrange(300), drawn.choice(_AGES), drawn.choice("FM"), *place, _date(drawn), 355]


def _date(drawn: Random) -> str:
    return f"{drawn.randint(1, 28):02}-{drawn.randint(1, 12):02}-{drawn.choice((2020, 2021))}"
