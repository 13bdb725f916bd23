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


KeyOption = Annotated[Path | None, typer.Option("--key", help="The public key that must have signed it (PEM).")]
GoldensOption = Annotated[Path | None, typer.Option("--goldens", help="The folder of golden files, for a bundle that holds their hashes only.")]
OutOption = Annotated[Path | None, typer.Option("--out", help="Keep what every worker wrote in this new folder.")]


def recheck(  # noqa: PLR0917 - each is an option of the command
    bundles: Annotated[
        list[str],
        typer.Argument(metavar="BUNDLE...", help="Folders, ids or their first digits, or PRODUCT or PRODUCT@CHANNEL.", show_default=False),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option("--with", help="An environment as it was signed off but for this version, such as 'openvino==2026.3.0'. May be repeated."),
    ] = None,
    python: Annotated[list[Path] | None, typer.Option("--python", help="An interpreter that is there already. May be repeated.")] = None,
    target: Annotated[list[str] | None, typer.Option("--target", help="Only this target, or reference. May be repeated.")] = None,
    store: StoreOption = None,
    key: KeyOption = None,
    goldens: GoldensOption = None,
    times: Annotated[bool, typer.Option("--times/--no-times", help="Measure latency, too.")] = True,
    anew: Annotated[
        bool, typer.Option("--export-anew", help="Export the sealed .keras file in every environment, too, and run what comes of it.")
    ] = False,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="Write the table to this file, for a pull request.")] = None,
    out: OutOption = None,
    as_json: Json = False,
) -> int:
    """Run sealed artifacts again under other versions, beside the ones that were signed off.

    What was approved is what is run, on its golden inputs, against its sealed outputs and decisions. Without --with and
    --python, the other environment is this one. Ends with 1 where a required target fails anywhere, with 3 where one is unchecked.
    """
    from kpipe.cli.recheck import run_recheck

    return run_recheck(
        bundles,
        tuple(changes or ()),
        tuple(python or ()),
        store=store,
        key=key,
        goldens=goldens,
        targets=tuple(target or ()),
        times=times,
        anew=anew,
        out=out,
        markdown=markdown,
        as_json=as_json,
    )


def rollback(  # noqa: PLR0917 - each is an option of the command
    to: Annotated[str, typer.Option("--to", metavar="BUNDLE", help="An approved bundle: its id or the first digits of it.", show_default=False)],
    by: Annotated[str, typer.Option("--by", help="Who rolls back.")] = "",
    reason: Annotated[str, typer.Option("--reason", help="Why.")] = "",
    store: StoreOption = None,
    channel: Annotated[str, typer.Option("--channel", help="What it is to be current for.")] = "production",
    accept: Annotated[
        str, typer.Option("--accept-findings", help="Findings to accept, as CODE@target with commas between; each has to be named.")
    ] = "",
    key: KeyOption = None,
    goldens: GoldensOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="A rehearsal: do everything but move the pointer.")] = False,
    out: OutOption = None,
    as_json: Json = False,
) -> int:
    """Make a bundle that was approved before the current one, if it still works.

    It is verified, then run again in today's environment and in the one that was signed off. Only where both pass does the pointer move; who
    and why goes into the log. Prints what to restore where the model runs.
    """
    from kpipe.cli.recheck import run_rollback

    return run_rollback(
        to,
        store=store,
        by=by,
        reason=reason,
        channel=channel,
        accepted=tuple(word for word in accept.split(",") if word),
        key=key,
        goldens=goldens,
        dry_run=dry_run,
        out=out,
        as_json=as_json,
    )


def add_to(app: typer.Typer) -> None:
    """Make them commands of kpipe."""
    commands: tuple[Callable[..., int], ...] = (approve, verify, history, inventory, recheck, rollback)
    for command in commands:
        app.command()(command)
