"""The words of sign-off: ``kpipe approve``, ``verify``, ``history``, ``inventory``. Options and help, nothing else. Nothing heavy is imported here."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable


class Goldens(enum.StrEnum):
    """What of the golden set is sealed."""

    FULL = "full"
    HASHES = "hashes"


RunArgument = Annotated[Path, typer.Argument(help="The folder of a run.", show_default=False)]
BundleArgument = Annotated[
    str,
    typer.Argument(
        metavar="BUNDLE",
        help="A bundle's folder, its id or the first digits of it, or PRODUCT or PRODUCT@CHANNEL for what is current.",
        show_default=False,
    ),
]
StoreOption = Annotated[str | None, typer.Option("--store", help="The store: a folder, or a URL that fsspec knows; else releases.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def approve(  # noqa: PLR0917 - each is an option of the command
    run: RunArgument,
    by: Annotated[str, typer.Option("--by", help="Who approves.", show_default=False)],
    reason: Annotated[str, typer.Option("--reason", help="Why the model may ship.", show_default=False)],
    store: StoreOption = None,
    key: Annotated[Path | None, typer.Option("--key", help="Sign the bundle with this private key (PEM, elliptic curve).")] = None,
    goldens: Annotated[
        Goldens,
        typer.Option("--goldens", help="full seals the golden files; hashes keeps their digests only, and they are supplied again at re-check."),
    ] = Goldens.FULL,
    channel: Annotated[str, typer.Option("--channel", help="What it is current for.")] = "production",
    product: Annotated[str | None, typer.Option("--product", help="The product's name, where the contract names none.")] = None,
    waivers: Annotated[
        Path | None, typer.Option("--waivers", help="Findings that somebody answers for; else waivers.toml beside the contract.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Seal a run that has passed the sign-off profile, and make it current.

    It is judged again from its saved evidence. The bundle holds all that it takes to run it again without a network.
    """
    from kpipe.cli.signoff import run_approve
    from kpipe.signoff.approve import ApproveRequest

    request = ApproveRequest(run, by, reason, store, key, str(goldens), channel, product)
    return run_approve(request, waivers, as_json=as_json)


def verify(
    bundle: BundleArgument,
    store: StoreOption = None,
    key: Annotated[Path | None, typer.Option("--key", help="The public key that must have signed it (PEM).")] = None,
    as_json: Json = False,
) -> int:
    """Check that a bundle is what was sealed: every file, its id, its signature, the approvals log.

    Ends with 1 where anything was altered, added or removed, and with 3 where a signature is there and no key was given.
    """
    from kpipe.cli.signoff import run_verify

    return run_verify(bundle, store, key, as_json=as_json)


def history(
    store: StoreOption = None,
    product: Annotated[str | None, typer.Option("--product", help="Only this product.")] = None,
    channel: Annotated[str | None, typer.Option("--channel", help="Only this channel.")] = None,
    head: Annotated[str | None, typer.Option("--head", help="An entry that must be in the log: the head that was seen last.")] = None,
    as_json: Json = False,
) -> int:
    """Show the line of releases: who approved which bundle when and why, and what is current."""
    from kpipe.cli.signoff import run_history

    return run_history(store, product, channel, head, as_json=as_json)


def inventory(bundle: BundleArgument, store: StoreOption = None, as_json: Json = False) -> int:
    """List what a team needs to carry on or to migrate: sources, versions, weights, preprocessing, settings, golden inputs."""
    from kpipe.cli.signoff import run_inventory

    return run_inventory(bundle, store, as_json=as_json)


def add_to(app: typer.Typer) -> None:
    """Make them commands of kpipe."""
    commands: tuple[Callable[..., int], ...] = (approve, verify, history, inventory)
    for command in commands:
        app.command()(command)
