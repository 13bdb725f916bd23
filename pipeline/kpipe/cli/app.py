"""The words of the command: options and help, nothing else. Nothing heavy is imported here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from kpipe.cli import signoff_app
from kpipe.cli.golden_app import golden as golden_group
from kpipe.errors import UsageError


class _Escape(BaseException):
    """Carries an exception past typer, which ends with codes of its own on some."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class _Commands(typer.core.TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, EOFError, BrokenPipeError) as error:
            raise _Escape(error) from error


app = typer.Typer(
    name="kpipe",
    cls=_Commands,
    help="The release gate for Keras models: may this .keras file ship to these runtimes?",
    epilog="Exit codes: 0 PASS, 1 FAIL, 2 the command, contract or golden set is off, 3 INCOMPLETE, 4 a fault of kpipe's own, 130/143 interrupted.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Model = Annotated[Path, typer.Argument(help="The .keras file.", show_default=False)]
RunArgument = Annotated[Path, typer.Argument(help="The folder of a run.", show_default=False)]
ContractOption = Annotated[
    Path | None, typer.Option("--contract", help="The contract; else kpipe.toml beside the model; else everything is inferred.")
]
CustomObjects = Annotated[list[Path] | None, typer.Option("--custom-objects", help="A Python file that registers custom layers. May be repeated.")]
WaiversOption = Annotated[Path | None, typer.Option("--waivers", help="Findings that somebody answers for; else waivers.toml beside the contract.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def _version(asked: bool) -> None:
    if asked:
        from kpipe.running.system import kpipe_version

        typer.echo(f"kpipe {kpipe_version()}")
        raise typer.Exit


@app.callback()
def _options(version: Annotated[bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)] = False) -> None:
    """Options of the command as a whole."""


@app.command()
def validate(  # noqa: PLR0917 - each is an option of the command
    model: Model,
    contract: ContractOption = None,
    golden: Annotated[
        Path | None, typer.Option("--golden", help="Folder of raw golden inputs, or an .npz of arrays named as the model's inputs.")
    ] = None,
    target: Annotated[list[str] | None, typer.Option("--target", help="Run only this target. May be repeated; the others stay unchecked.")] = None,
    custom_objects: CustomObjects = None,
    out: Annotated[Path | None, typer.Option("--out", help="Run folder; else runs/<UTC time>-<model>.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Workers at a time; else one a core.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the interrupted run in --out.")] = False,
    profile: Annotated[
        str | None,
        typer.Option("--profile", help="default, or signoff: five repeats, more batch sizes, every position of a batch; else the contract's."),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="A run or bundle of an earlier model, to hold this one against by the contract's [compare].")
    ] = None,
    waivers: WaiversOption = None,
    reuse: Annotated[
        bool, typer.Option("--reuse/--no-reuse", help="Take artifacts that an earlier run exported from the same things from kpipe's cache.")
    ] = True,
    as_json: Json = False,
) -> int:
    """Answer whether the model may ship: inspect, reload, export, run, compare, measure, judge."""
    from kpipe.cli.validate import run_validate
    from kpipe.running.request import Request

    request = Request(
        model,
        contract,
        golden,
        tuple(target or ()),
        tuple(custom_objects or ()),
        out,
        jobs,
        resume,
        profile=profile,
        baseline=baseline,
        waivers=waivers,
        reuse=reuse,
    )
    return run_validate(request, as_json=as_json)


@app.command()
def inspect(
    model: Annotated[Path, typer.Argument(help="The .keras file, or an artifact: .tflite, .onnx, .xml or a SavedModel folder.", show_default=False)],
    contract: ContractOption = None,
    custom_objects: CustomObjects = None,
    op_profile: Annotated[
        str | None, typer.Option("--op-profile", help="Hold an artifact's ops against this: tflite-micro, onnxruntime-1.17, openvino-CPU, ...")
    ] = None,
    as_json: Json = False,
) -> int:
    """Print what is inside a .keras file, or the ops of an artifact, without running any of it."""
    from kpipe.cli.inspect import run_inspect

    return run_inspect(model, contract, tuple(custom_objects or ()), op_profile, as_json=as_json)


@app.command()
def init(
    model: Model,
    raw: Annotated[Path | None, typer.Option("--raw", help="A directory of raw files: they become a golden folder.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The contract to write; else kpipe.toml beside the model.")] = None,
    golden: Annotated[Path | None, typer.Option("--golden", help="The golden folder to make; else golden_inputs beside the contract.")] = None,
    custom_objects: CustomObjects = None,
) -> int:
    """Write a contract from the model's signature, and a golden folder from a directory of raw files."""
    from kpipe.cli.init import run_init

    return run_init(model, raw, out, golden, tuple(custom_objects or ()))


@app.command()
def judge(run: RunArgument, contract: ContractOption = None, waivers: WaiversOption = None, as_json: Json = False) -> int:
    """Judge a run's saved outputs again, by another contract; nothing is run."""
    from kpipe.cli.validate import run_judge

    return run_judge(run, contract, waivers, as_json=as_json)


@app.command()
def report(run: RunArgument, as_json: Json = False) -> int:
    """Write a run's reports again and print its table."""
    from kpipe.cli.validate import run_report

    return run_report(run, as_json=as_json)


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(help="The earlier model's run or bundle.", show_default=False)],
    now: Annotated[Path, typer.Argument(help="The later model's run or bundle.", show_default=False)],
    contract: Annotated[Path | None, typer.Option("--contract", help="The contract whose [compare] is the policy; else NOW's own.")] = None,
    first: Annotated[
        Path | None,
        typer.Option("--first", help="The first approved model's run or bundle, for the drift since; else the one in the log of BEFORE's store."),
    ] = None,
    time: Annotated[bool, typer.Option("--time", help="Time the targets that both have in turns, on this machine.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a pull request.")] = False,
    as_json: Json = False,
) -> int:
    """Hold a model against an earlier one, from what two runs or bundles left behind; nothing is run without --time."""
    from kpipe.cli.compare import run_compare

    return run_compare(before, now, contract, first, time=time, markdown=markdown, as_json=as_json)


@app.command()
def diagnose(
    run: RunArgument,
    target: Annotated[str, typer.Option("--target", help="The target to look into.", show_default=False)],
    golden: Annotated[str | None, typer.Option("--input", help="Golden id to look at first; else those with the largest difference.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="A new folder for what is found; else diagnose/<target> in the run.")] = None,
    as_json: Json = False,
) -> int:
    """Name the first layer whose output leaves the reference on a target of a finished run, and write a minimal reproducer."""
    from kpipe.cli.diagnose import run_diagnose

    return run_diagnose(run, target, golden, out, as_json=as_json)


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(help="The recipe's folder or its recipe.py.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="The .keras file to write.")] = Path("model.keras"),
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")] = 0,
    epochs: Annotated[int | None, typer.Option("--epochs", min=1, help="Epochs; else the recipe's.")] = None,
    backend: Annotated[str, typer.Option("--backend", help="Keras backend.")] = "jax",
    checkpoint_every: Annotated[
        str,
        typer.Option("--checkpoint-every", help="auto (costs about 1 % of the time), '500 steps', '2 epochs', or off."),
    ] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint in OUT.checkpoints.")] = False,
    calibration: Annotated[
        int, typer.Option("--calibration", min=0, help="Leave so many training inputs beside the model, for precision variants to be calibrated on.")
    ] = 0,
) -> int:
    """Train a recipe in a process of its own and save the .keras file with its record beside it.

    Until the model is saved, checkpoints lie in OUT.checkpoints: 'kpipe checkpoint OUT' prints what one preserves.
    """
    from kpipe.cli.train import run_train

    return run_train(
        recipe, out, seed=seed, epochs=epochs, backend=backend, calibration=calibration, checkpoint_every=checkpoint_every, resume=resume
    )


@app.command()
def checkpoint(
    model: Annotated[Path, typer.Argument(help="The .keras file that the training makes, or a checkpoint's folder.", show_default=False)],
    as_json: Json = False,
) -> int:
    """Print where an unfinished training stands and what its newest checkpoint preserves."""
    from kpipe.cli.checkpoint import run_checkpoint

    return run_checkpoint(model, as_json=as_json)


@app.command()
def targets(as_json: Json = False) -> int:
    """List the runtimes: installed or not, version, and the extra that brings each."""
    from kpipe.cli.doctor import run_targets

    return run_targets(as_json=as_json)


@app.command()
def doctor(as_json: Json = False) -> int:
    """Look at this machine: interpreter, backends, what stands in the way, what changes numerics."""
    from kpipe.cli.doctor import run_doctor

    return run_doctor(as_json=as_json)


app.add_typer(golden_group)
signoff_app.add_to(app)


@app.command()
def selftest(
    model: Annotated[Path | None, typer.Option("--model", help="A healthy .keras file of your own; else small ones that are built.")] = None,
    contract: Annotated[Path | None, typer.Option("--contract", help="Its contract, with raw golden inputs.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Only this family: preprocessing, weights, export, runtime, decision or golden. May be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Keep every planted fault and its run in this new folder.")] = None,
    healthy: Annotated[int | None, typer.Option("--healthy", min=1, help="Plant nothing: run so many healthy validations and count alarms.")] = None,
    as_json: Json = False,
) -> int:
    """Test the gate: plant faults, one at a time, into a healthy setup, and print which are caught, and by what."""
    from kpipe.cli.selftest import run_command

    return run_command(model, contract, tuple(only or ()), out, healthy, as_json=as_json)


@app.command()
def preflight(
    source: Annotated[str, typer.Argument(help="module:function (or file.py:function) that builds the model, or a .keras file.", show_default=False)],
    target: Annotated[list[str] | None, typer.Option("--target", help="Only this target. May be repeated; the others stay unchecked.")] = None,
    contract: Annotated[Path | None, typer.Option("--contract", help="Its targets, settings and export rules; else every installed runtime.")] = None,
    custom_objects: CustomObjects = None,
    out: Annotated[Path | None, typer.Option("--out", help="Run folder; else runs/<UTC time>-<function>.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Workers at a time; else one a core.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the weights.")] = 0,
    as_json: Json = False,
) -> int:
    """Ask of an untrained model: would it convert, load and agree? 0 yes, 1 no, 3 unchecked; never a verdict."""
    from kpipe.cli.preflight import run_preflight
    from kpipe.preflight.run import Order

    order = Order(source, tuple(target or ()), contract, tuple(custom_objects or ()), out, jobs, seed)
    return run_preflight(order, as_json=as_json)


@app.command()
def compatibility(
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only units of this name; patterns as for files: 'Conv*'. May be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the page here (Markdown).")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write the table here, as data.")] = None,
    against: Annotated[Path | None, typer.Option("--against", help="An earlier --json: print what has changed since.")] = None,
    keep: Annotated[Path | None, typer.Option("--keep", help="Work in this folder and leave everything there; a second run goes on with it.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Workers at a time; else one a core.")] = None,
) -> int:
    """Run every layer, activation and op of Keras on every runtime, and write down what works."""
    from kpipe.cli.compatibility import run_compatibility

    return run_compatibility(tuple(only or ()), out, as_json, against, keep, jobs)


def command(words: list[str]) -> int:
    """Run a command; its exit code.

    Raises:
        UsageError: the words are off.
        KeyboardInterrupt: a signal stopped it.
        BrokenPipeError: whoever read its output has gone.
    """
    from typer.exceptions import TyperException

    try:
        result = typer.main.get_command(app).main(args=words, prog_name="kpipe", standalone_mode=False)
    except _Escape as escape:
        raise escape.error from None
    except TyperException as error:
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        raise UsageError(f"{message} Try 'kpipe --help'.") from error
    if not isinstance(result, int):
        raise TypeError(f"a command ended with {result!r} instead of an exit code")
    return result
