"""The trainer's commands: ``epsilon trainer ...``. torch loads inside a command, not for ``--help``."""

from __future__ import annotations

import typer

app = typer.Typer()
trainer = typer.Typer(no_args_is_help=True, help="Train with differential privacy inside a clean room.")
app.add_typer(trainer, name="trainer")


@trainer.callback()
def _group() -> None:
    """Train with differential privacy inside a clean room."""


@trainer.command()
def device() -> None:
    """Name the device that training would run on."""
    from trainer_adapter.device import choose, in_words

    typer.echo(in_words(choose()))
