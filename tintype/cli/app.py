"""``tintype``: looks at saved programs, runs and compares them, makes them of models, and converts files. What a
command needs is loaded when it is called. docs/command_line.md has all commands and what they end with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tintype.errors import TintypeError

app = typer.Typer(
    name="tintype",
    help="Programs captured from PyTorch models, in files.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from tintype import __version__

        typer.echo(f"tintype {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Programs captured from PyTorch models, in files."""


ProgramFile = Annotated[Path, typer.Argument(help="A file that tintype.save wrote.", metavar="MODEL.tt")]


Functions = Annotated[bool, typer.Option("--functions", help="To ONNX: a function for each kind of module.")]
Verify = Annotated[
    bool | None,
    typer.Option(
        "--verify/--no-verify", help="To ONNX: compare with the program on ONNX Runtime (up to 500 MB by itself)."
    ),
]
Entry = Annotated[
    str | None, typer.Option("--entry", "-e", help="Which program, if the file holds several.", metavar="NAME")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        help="An input by name: a file (.npy, .npz, .pt, .safetensors, .json), a number, true, false, or JSON; or a "
        "file of several inputs by name.",
        metavar="NAME=VALUE",
    ),
]
Example = Annotated[
    bool, typer.Option("--example", help="Take inputs that are not given from the program's example.")
]
Imports = Annotated[
    list[str] | None,
    typer.Option("--import", help="A module to import first: operators and classes.", metavar="MODULE"),
]

AsJson = Annotated[bool, typer.Option("--json", help="As JSON, for machines.")]
ModelSource = Annotated[
    str,
    typer.Argument(
        help="A model or a function that makes one, or a folder with a model of transformers.",
        metavar="package.module:factory|hf:FOLDER",
    ),
]
Described = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        help="An input by name: sizes and dtype of a tensor, a file, or a value.",
        metavar="x=2x3:float32",
    ),
]
Dynamic = Annotated[
    list[str] | None,
    typer.Option(
        "--dynamic",
        "-d",
        help="A size that varies: a name, perhaps with bounds (x.0=batch:1:64), a multiple (x.2=8*rows), auto; or "
        "auto for everything.",
        metavar="x.0=batch",
    ),
]

# what a command ends with; 2 is for a command line that can't be understood
REFUSED = 1
DIFFERENT = 3


@contextmanager
def _told_plainly() -> Iterator[None]:
    """Errors that a user can do something about come as their text, without a traceback."""
    try:
        yield
    except TintypeError as error:
        sys.stderr.write(f"tintype: {error}\n  More: tintype explain {error.id}\n")
        raise typer.Exit(REFUSED) from None
    except OSError as error:
        sys.stderr.write(f"tintype: {error}\n")
        raise typer.Exit(REFUSED) from None


@app.command()
def info(file: ProgramFile, as_json: AsJson = False) -> None:
    """Print a program's inputs and outputs, what sizes it takes, its operators, weights and versions."""
    from tintype.cli.info import print_info

    with _told_plainly():
        print_info(file, as_json=as_json)


@app.command()
def tree(
    file: ProgramFile,
    entry: Entry = None,
    depth: Annotated[int | None, typer.Option("--depth", help="How many levels of modules.", min=0)] = None,
) -> None:
    """Print the modules of a program with their operators and parameters; modules that are alike once."""
    with _told_plainly():
        from tintype.cli.looking import print_tree

        print_tree(file, entry=entry, depth=depth)


@app.command()
def show(
    file: ProgramFile,
    entry: Entry = None,
    module: Annotated[
        str | None, typer.Option("--module", "-m", help="Only what this module does.", metavar="encoder.*")
    ] = None,
    operator: Annotated[
        str | None, typer.Option("--op", help="Only calls of this operator.", metavar="linear")
    ] = None,
) -> None:
    """Print a program as code, or the part of it that belongs to a module or calls an operator."""
    with _told_plainly():
        from tintype.cli.looking import print_part

        print_part(file, entry=entry, module=module, operator=operator)


@app.command()
def view(
    files: Annotated[list[Path], typer.Argument(help="A program, or two to compare.", metavar="MODEL.tt [OTHER.tt]")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; MODEL.html without.", metavar="FILE")
    ] = None,
    entry: Entry = None,
    form: Annotated[
        str, typer.Option("--format", help="page, or model-explorer for Google's viewer.", metavar="FORMAT")
    ] = "page",
    stages: Annotated[bool, typer.Option("--stages", help="With the program in core ATen beside it.")] = False,
    source: Annotated[bool, typer.Option("--source", help="With the lines that nodes come from.")] = False,
    statistics: Annotated[bool, typer.Option("--statistics", help="With ranges of weights.")] = False,
    imports: Imports = None,
    containers: Annotated[
        str, typer.Option(help="strict, or plain: objects of classes that are not here are plain ones.")
    ] = "plain",
) -> None:
    """Write a page that shows programs: contract, modules, costs, graph, in one HTML file that needs no network."""
    with _told_plainly():
        from tintype.cli.inputs import import_modules
        from tintype.cli.view import view_files

        import_modules(imports or [])
        view_files(
            files, output, entry=entry, form=form, stages=stages, source=source, statistics=statistics,
            containers=containers,
        )  # fmt: skip


@app.command()
def decompose(
    file: ProgramFile,
    target: Annotated[Path, typer.Argument(help="The file to write.", metavar="CORE.tt")],
    entry: Entry = None,
) -> None:
    """Write a program in terms of core ATen."""
    with _told_plainly():
        from tintype.cli.inputs import load_one
        from tintype.cli.progress import progress
        from tintype.serde.files import save

        with progress(f"reading {file.name}") as tell:
            program = load_one(file, entry)
            tell("decomposing")
            program = program.run_decompositions()
            tell(f"writing {target.name}")
            save(program, target)
        print(f"{target}: {program!r}")


@app.command()
def bench(
    file: ProgramFile,
    entry: Entry = None,
    inputs: Inputs = None,
    calls: Annotated[int, typer.Option("--calls", help="How many calls are timed.", min=1)] = 20,
    threads: Annotated[int | None, typer.Option("--threads", help="How many threads torch may use.", min=1)] = None,
    as_json: AsJson = False,
    imports: Imports = None,
) -> None:
    """Print how long calls of a program take, on its example or on inputs."""
    with _told_plainly():
        from tintype.cli.bench import bench_program
        from tintype.cli.inputs import import_modules

        import_modules(imports or [])
        bench_program(file, inputs or [], entry=entry, calls=calls, threads=threads, as_json=as_json)


@app.command()
def export(
    model: ModelSource,
    target: Annotated[Path, typer.Argument(help="The file to write.", metavar="MODEL.tt")],
    inputs: Described = None,
    dynamic: Dynamic = None,
    validate: Annotated[
        bool, typer.Option("--validate/--no-validate", help="Compare the file with the model on the inputs.")
    ] = True,
) -> None:
    """Export a model that a Python module makes, or that a folder holds; ends with 3 if the file does otherwise."""
    with _told_plainly():
        from tintype.cli.export_model import export_model

        agree = export_model(model, target, inputs or [], dynamic or [], validate=validate)
    if not agree:
        raise typer.Exit(DIFFERENT)


@app.command()
def check(
    model: ModelSource,
    inputs: Described = None,
    dynamic: Dynamic = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", help="Write a page of the problems, or of the program.", metavar="FILE.html"),
    ] = None,
) -> None:
    """Say whether a model can be exported, and name every problem; ends with 3 if there are some."""
    with _told_plainly():
        from tintype.cli.export_model import check_model

        good = check_model(model, inputs or [], dynamic or [], page=page)
    if not good:
        raise typer.Exit(DIFFERENT)


weights_app = typer.Typer(
    help="Parameters and buffers: list them, or write a file with others.", no_args_is_help=True
)
app.add_typer(weights_app, name="weights")


@weights_app.command("ls")
def list_weights(
    file: ProgramFile,
    entry: Entry = None,
    statistics: Annotated[bool, typer.Option("--statistics", "-s", help="With the range of their numbers.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print every weight with its shape."""
    with _told_plainly():
        from tintype.cli.weights import list_weights

        list_weights(file, entry=entry, statistics=statistics, as_json=as_json)


@weights_app.command("replace")
def replace_weights(
    file: ProgramFile,
    sources: Annotated[
        list[Path], typer.Argument(help="safetensors files, a folder of them, or a state_dict.", metavar="WEIGHTS...")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.", metavar="MODEL.tt")],
    entry: Entry = None,
    strict: Annotated[
        bool,
        typer.Option("--strict/--not-strict", help="All tensors are used, and all weights without data found."),
    ] = True,
) -> None:
    """Write a program with other weights; names, shapes and dtypes are checked."""
    with _told_plainly():
        from tintype.cli.weights import replace_weights

        replace_weights(file, sources, output, entry=entry, strict=strict)


@app.command()
def run(
    file: ProgramFile,
    entry: Entry = None,
    inputs: Inputs = None,
    example: Example = False,
    imports: Imports = None,
    containers: Annotated[
        str, typer.Option(help="strict, or plain: objects of classes that are not here are plain ones.")
    ] = "strict",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the results to this .npz file.", metavar="FILE.npz")
    ] = None,
) -> None:
    """Run a program on inputs from files and print its results."""
    with _told_plainly():
        from tintype.cli.inputs import import_modules
        from tintype.cli.run import run_program

        import_modules(imports or [])
        run_program(file, inputs or [], entry=entry, example=example, output=output, containers=containers)


@app.command()
def compare(
    one: Annotated[Path, typer.Argument(help="A program.", metavar="A.tt")],
    other: Annotated[Path, typer.Argument(help="A program that should compute the same.", metavar="B.tt")],
    entry: Entry = None,
    inputs: Inputs = None,
    example: Example = False,
    tolerance: Annotated[
        float | None, typer.Option("--tolerance", help="How far numbers may be apart, as a part of the largest one.")
    ] = None,
    imports: Imports = None,
) -> None:
    """Run two programs on the same inputs and say where their numbers part; ends with 3 if they do."""
    with _told_plainly():
        from tintype.cli.compare import compare_files
        from tintype.cli.inputs import import_modules

        import_modules(imports or [])
        agree = compare_files(one, other, inputs or [], entry=entry, example=example, tolerance=tolerance)
    if not agree:
        raise typer.Exit(DIFFERENT)


@app.command()
def diff(
    one: Annotated[Path, typer.Argument(help="A program.", metavar="A.tt")],
    other: Annotated[Path, typer.Argument(help="Another one.", metavar="B.tt")],
    entry: Entry = None,
    text: Annotated[bool, typer.Option("--text/--no-text", help="Show the lines that differ.")] = True,
) -> None:
    """Print what is different in two programs: operators, weights, contract and text; ends with 3 if something is."""
    with _told_plainly():
        from tintype.cli.compare import diff_files

        same = diff_files(one, other, entry=entry, text=text)
    if not same:
        raise typer.Exit(DIFFERENT)


@app.command()
def convert(
    source: Annotated[
        Path,
        typer.Argument(
            help="What torch.jit.save, torch.export.save or tintype.save wrote.",
            metavar="MODEL.pt|MODEL.pt2|MODEL.tt",
        ),
    ],
    target: Annotated[Path, typer.Argument(help="The file to write.", metavar="MODEL.tt|MODEL.pt2|MODEL.onnx")],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            help="An input by name: sizes and dtype of a tensor, or a value.",
            metavar="x=2x3:float32",
        ),
    ] = None,
    dynamic: Dynamic = None,
    method: Annotated[str, typer.Option("--method", "-m", help="The method to convert.", metavar="NAME")] = "forward",
    trust: Annotated[
        bool, typer.Option("--trust", help="Load the file, which runs code that it brings along.")
    ] = False,
    entry: Entry = None,
    opset: Annotated[int | None, typer.Option("--opset", help="To ONNX: the opset, 18 to 24.")] = None,
    optimize: Annotated[bool, typer.Option("--optimize", help="To ONNX: onnxscript's optimizer as well.")] = False,
    functions: Functions = False,
    verify: Verify = None,
    external_data: Annotated[
        bool, typer.Option("--external-data", help="To ONNX: weights in a file of their own, whatever their size.")
    ] = False,
) -> None:
    """Make a program of a TorchScript or torch.export file, or write one as ONNX or for torch.export: the endings of
    the two names say what they are."""
    with _told_plainly():
        from tintype.cli.convert import convert_file

        onnx_options = {"opset": opset, "optimize": optimize, "functions": functions, "verify": verify}
        convert_file(
            source,
            target,
            inputs or [],
            dynamic or [],
            entry=entry,
            method=method,
            trust=trust,
            onnx_options={**onnx_options, "external_data": external_data},
        )


@app.command()
def verify(file: ProgramFile) -> None:
    """Read every byte of a file, compare its checksums, and check the program by the rules of its stage."""
    from tintype.cli.verify import verify_file

    with _told_plainly():
        verify_file(file)


@app.command()
def explain(
    error: Annotated[
        str | None, typer.Argument(help="The id of an error; all are listed without.", metavar="ID")
    ] = None,
) -> None:
    """Print what an error means, an example that raises it, and what to do."""
    from tintype.cli.explain import print_explanation

    with _told_plainly():
        print_explanation(error)


@app.command()
def version() -> None:
    """Print the version of tintype and of the file format that it writes."""
    from tintype.serde import schema

    print(f"tintype {sys.modules['tintype'].__version__}, file format {schema.FORMAT_MAJOR}.{schema.FORMAT_MINOR}")


def main() -> None:
    """The console script."""
    app()
