"""The container files of docs/containers/README.md: they fit one another, the locks and the program."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import venv
from ipaddress import IPv4Network, ip_address
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from typer.testing import CliRunner

from api.cli.settings import Settings
from epsilon_ledger.__main__ import assemble
from tests.documentation.fenced_blocks import ROOT, commands
from tests.epsilon_ledger.commands import parsed

HERE: Final = "tests/documentation/test_containers.py"
FOLDER: Final = ROOT / "docs" / "containers"
COMPOSE: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))


def _instructions() -> list[tuple[str, str]]:
    """Each instruction of the Dockerfile, with what follows it."""
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def _copied(rest: str) -> tuple[bool, list[str], str]:
    """Of a COPY: whether another stage is its source, what it copies, and where to."""
    words = shlex.split(rest)
    *sources, target = [one for one in words if not one.startswith("--")]
    return any(one.startswith("--from=") for one in words), sources, target


def test_what_is_copied_is_there_and_not_ignored() -> None:
    """Every package of the wheel is; every lock that a line installs from was copied before."""
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    copied: set[str] = set()
    for name, rest in _instructions():
        if name == "COPY":
            from_stage, sources, _ = _copied(rest)
            for source in () if from_stage else sources:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in ignored, source
                copied.add(source)
        if name == "RUN":
            assert {one for one in shlex.split(rest) if one.endswith(".lock")} <= copied
            assert "pip install" not in rest or "--require-hashes" in rest or "--no-index" in rest
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    packages = re.search(r"^packages = (\[.*\])$", pyproject, re.MULTILINE)
    assert packages is not None
    assert set(json.loads(packages[1])) <= copied


def test_the_lock_of_the_service_is_a_part_of_the_other() -> None:
    """Pin by pin, hash by hash; it has all that the program depends on, and neither tests nor PyTorch."""
    pins = {name: _pins(name) for name in ("service.lock", "dev.lock")}
    assert pins["service.lock"].items() <= pins["dev.lock"].items()
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    needed = re.search(r"^dependencies = \[(.*?)^\]", pyproject, re.MULTILINE | re.DOTALL)
    assert needed is not None
    assert set(re.findall(r'"([a-z0-9-]+)', needed[1])) <= set(pins["service.lock"])
    assert not {"pytest", "mypy", "torch", "hatchling"} & set(pins["service.lock"])


def _pins(lock: str) -> dict[str, set[str]]:
    text = (ROOT / lock).read_text(encoding="utf-8")
    blocks = re.split(r"^(?=[a-z0-9-]+==)", text, flags=re.MULTILINE)[1:]
    return {block.partition("==")[0]: set(re.findall("sha256:[0-9a-f]{64}", block)) for block in blocks}


def test_each_command_of_the_containers_is_one() -> None:
    """And what they mount is a file here, or what the page's commands make."""
    made = {"./service", "./issuer", "./tls"}
    for name, service in COMPOSE["services"].items():
        if service["image"] == "epsilon-ledger":
            assert parsed(list(service["command"])), name
        for mount in service.get("volumes", ()):
            source = mount.partition(":")[0]
            assert source in COMPOSE["volumes"] or source in made or (FOLDER / source).is_file(), mount
        for other in service.get("depends_on", ()):
            assert other in COMPOSE["services"]
    (entry,) = (rest for name, rest in _instructions() if name == "ENTRYPOINT")
    assert json.loads(entry) == ["epsilon"]


def test_the_address_of_the_proxy_is_given_to_no_other() -> None:
    """What starts before it would get it: Docker gives addresses out in turn, from the range that it may use."""
    (network,) = COMPOSE["networks"]["inside"]["ipam"]["config"]
    proxy = ip_address(COMPOSE["services"]["proxy"]["networks"]["inside"]["ipv4_address"])
    assert proxy in IPv4Network(network["subnet"])
    assert proxy not in IPv4Network(network["ip_range"])
    assert IPv4Network(network["ip_range"]).subnet_of(IPv4Network(network["subnet"]))


def test_the_profile_that_the_page_makes_fits_proxy_and_database(tmp_path: Path) -> None:
    """Where it listens, by which name it is called, which proxy it believes, and whose database it opens."""
    key = CliRunner().invoke(assemble(), ["key", "new", str(tmp_path / "issuer.pem")])
    (tmp_path / "issuer.jwks").write_text(f'{{"keys": [{key.stdout}]}}')
    typed = [line for line, _ in commands(FOLDER / "README.md", HERE) if not line.startswith("docker ")]
    for line in typed:
        if line.startswith("epsilon "):
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(tmp_path)
                done = CliRunner().invoke(assemble(), shlex.split(line)[1:])
            assert done.exit_code == 0, done.output
        else:
            subprocess.run(["bash", "-euc", line], cwd=tmp_path, check=True)
    settings = Settings.load(tmp_path / "service" / "service.toml")
    nginx = (FOLDER / "nginx.conf").read_text(encoding="utf-8")
    assert settings.production
    assert settings.url == f"https://{re.findall(r'server_name (.*);', nginx)[0]}"
    assert re.findall(r"proxy_pass (.*);", nginx) == [f"http://service:{settings.port}"]
    assert settings.proxies == (COMPOSE["services"]["proxy"]["networks"]["inside"]["ipv4_address"],)
    assert "@database/epsilon" in settings.book
    assert settings.book.endswith(COMPOSE["services"]["upgrade"]["command"][-1].partition("://")[2])
    assert (tmp_path / "service" / "pgpass").read_text().startswith("database:5432:epsilon:epsilon:")


@pytest.mark.soak
def test_each_run_line_of_the_dockerfile_works_in_an_empty_environment(tmp_path: Path) -> None:
    """With a fresh environment a stage in place of the image, and folders in place of its own; the command runs."""
    outside = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    stages: dict[str, Path] = {}
    here, home = tmp_path, tmp_path
    for name, rest in _instructions():
        if name == "FROM":
            label = rest.partition(" AS ")[2] or "last"
            here = home = stages[label] = tmp_path / label
            venv.create(home / "environment", with_pip=True)
        elif name == "WORKDIR":
            here = home / rest.lstrip("/")
            here.mkdir(parents=True)
        elif name == "COPY":
            from_stage, sources, target = _copied(rest)
            for source in sources:
                place = stages["build"] / source.lstrip("/") if from_stage else ROOT / source
                subprocess.run(["cp", "-r", str(place), str(here / target)], check=True)
        elif name == "RUN":
            done = subprocess.run(
                ["sh", "-euc", rest],
                cwd=here,
                env={**outside, "PATH": f"{home / 'environment' / 'bin'}:/usr/bin:/bin"},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, (rest, done.stdout, done.stderr)
    assert "Serve a book over HTTP" in _printed(stages["last"], tmp_path, ["epsilon", "serve", "--help"])
    # The driver of PostgreSQL comes with it, and a service starts.
    assert (
        _printed(stages["last"], tmp_path, ["python", "-c", "import psycopg; print(psycopg.__name__)"]) == "psycopg\n"
    )
    up = ["epsilon", "up", "made", "--port", "0", "--issuer-port", "0"]
    assert "Serving until interrupted.\n" in _printed(stages["last"], tmp_path, up, until="until interrupted.\n")


def _printed(stage: Path, place: Path, command: list[str], until: str = "") -> str:
    """What a command of a stage's environment prints until it ends; or until a line ends so, and it is interrupted."""
    bin_ = stage / "environment" / "bin"
    printed: list[str] = []
    with subprocess.Popen(
        [bin_ / command[0], *command[1:]], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            printed.append(line)
            if until and line.endswith(until):
                process.send_signal(signal.SIGINT)
    assert process.returncode == 0, printed
    return "".join(printed)
