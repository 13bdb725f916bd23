"""The words of ``kpipe golden``: options and help, nothing else. Nothing heavy is imported here."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

golden = typer.Typer(
    name="golden",
    help="Keep a golden set: verify it, add raw files to it, mine a pool for hard ones.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Chosen(enum.StrEnum):
    """How an input came into the set."""

    SAMPLED = "sampled"
    MINED = "mined"


class Strategy(enum.StrEnum):
    """What inputs are mined by."""

    MARGIN = "margin"
    DISAGREEMENT = "disagreement"
    COVERAGE = "coverage"


Folder = Annotated[Path, typer.Argument(help="The golden set: a folder with manifest.toml.", show_default=False)]
ContractOption = Annotated[
    Path | None,
    typer.Option(
        "--contract", help="The contract whose [inputs] say how files become tensors; else kpipe.toml beside the model, in or beside DIR, or here."
    ),
]
CustomObjects = Annotated[list[Path] | None, typer.Option("--custom-objects", help="A Python file that registers custom layers. May be repeated.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@golden.command()
def verify(folder: Folder, contract: ContractOption = None, as_json: Json = False) -> int:
    """Check that the set is what its manifest says.

    Manifest, digests, decoding and preprocessing, files that no entry lists, contents that stand twice. Nothing is changed and no model is run.
    Ends with 1 where something is wrong.
    """
    from kpipe.cli.golden import run_verify

    return run_verify(folder, contract, as_json=as_json)


@golden.command()
def add(  # noqa: PLR0917 - each is an option of the command
    folder: Folder,
    files: Annotated[list[Path], typer.Argument(help="Raw files. They are copied; all of them are added, or none.", show_default=False)],
    contract: ContractOption = None,
    slice_: Annotated[str, typer.Option("--slice", help="A group that reports count apart.")] = "",
    label: Annotated[str | None, typer.Option("--label", help="The truth, if it is known.")] = None,
    expected: Annotated[str | None, typer.Option("--expected", help="The approved decision.")] = None,
    chosen: Annotated[
        Chosen, typer.Option("--chosen", help="sampled only where they were drawn at random from what the product sees.")
    ] = Chosen.MINED,
    source: Annotated[str, typer.Option("--source", help="Where they come from, in words; else the file's name.")] = "",
    model: Annotated[Path | None, typer.Option("--model", help="Ask this model too: its decisions and margins are shown and noted.")] = None,
    expected_from_model: Annotated[
        bool,
        typer.Option(
            "--expected-from-model", help="Take the model's decisions as the approved ones. It proves nothing until a person confirms them."
        ),
    ] = False,
    custom_objects: CustomObjects = None,
    row: Annotated[
        list[int] | None, typer.Option("--row", min=0, help="A row of the one table that is named, from 0: a golden input each. May be repeated.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Add raw files to the set.

    They are copied, with digest, date and where they come from; a set is made where there is none. Nothing is overwritten. A file that is in the
    set already, or that does not decode, is refused, and then none is added.
    """
    from kpipe.cli.golden import run_add
    from kpipe.curating.add import AddRequest

    words = (contract, slice_, label, expected, str(chosen), source, model, expected_from_model, tuple(custom_objects or ()), tuple(row or ()))
    return run_add(AddRequest(folder, tuple(files), *words), as_json=as_json)


@golden.command()
def mine(  # noqa: PLR0917 - each is an option of the command
    folder: Folder,
    pool: Annotated[Path, typer.Option("--from", help="A folder of raw files; names of sub-folders become slices.")],
    count: Annotated[int, typer.Option("-n", min=1, help="How many to add.")],
    model: Annotated[Path, typer.Option("--model", help="The .keras file whose reference is asked.")],
    contract: ContractOption = None,
    by: Annotated[
        list[Strategy] | None,
        typer.Option(
            "--by",
            help="May be repeated, for equal shares. Else half by margin, a quarter by disagreement where targets are named, the rest by coverage.",
        ),
    ] = None,
    target: Annotated[list[str] | None, typer.Option("--target", help="A target to disagree with the reference. May be repeated.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Orders what is equal.")] = 0,
    custom_objects: CustomObjects = None,
    as_json: Json = False,
) -> int:
    """Pick raw files from a pool.

    By the smallest margins, disagreement between targets, and coverage of classes and slices; they are added as mined, without an expected
    decision. Ends with 1 where fewer were found than asked for.
    """
    from kpipe.cli.golden import run_mine
    from kpipe.curating.mine import MineRequest
    from kpipe.curating.selection import By

    chosen = tuple(By(str(one)) for one in by or ())
    request = MineRequest(folder, pool, count, model, contract, chosen, tuple(target or ()), seed, tuple(custom_objects or ()))
    return run_mine(request, as_json=as_json)
