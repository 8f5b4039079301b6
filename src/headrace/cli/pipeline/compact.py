# SPDX-License-Identifier: Apache-2.0
"""``headrace pipeline compact``: merge small files of lakes and tables."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.pipeline.run import parse_parameters, pipeline_errors


@click.command()
@click.option("--target-mb", type=click.IntRange(1), default=128, show_default=True)
@click.option(
    "--files-min", type=click.IntRange(2), default=8, show_default=True,
    help="Skip partitions with fewer small files.",
)  # fmt: skip
@click.option(
    "--keep-hours",
    type=click.IntRange(0),
    help="Delta and Iceberg only: delete older files that are not part of the table. [keep all]",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Parquet and --keep-hours only: print the changes without making them.",
)
@click.option("--sink", help="A sink of type iceberg, if PATH is a pipeline's file.")
@click.option(
    "--set",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="A value for ${NAME} in the file; may be repeated.",
)
@click.argument("path", type=click.Path(exists=True, path_type=Path))
def compact(
    target_mb: int,
    files_min: int,
    keep_hours: int | None,
    dry_run: bool,
    sink: str | None,
    parameters: tuple[str, ...],
    path: Path,
) -> None:
    """Merge the small files of the lake PATH, while it is read and written.

    PATH is a directory of Parquet files, a Delta table, or the file of a pipeline. In a pipeline,
    --sink selects one of its Iceberg tables. --keep-hours also expires the table's older snapshots.
    """
    from headrace.pipeline.sinks import compact as parquet
    from headrace.pipeline.sinks import delta

    if path.is_file():
        if sink is None:
            raise click.UsageError(f"{path} is a file: name one of its tables with --sink")
        _compact_iceberg(path, parameters, sink, target_mb << 20, files_min, keep_hours, dry_run)
        return
    if sink is not None:
        raise click.UsageError(f"--sink needs a pipeline's file; {path} is a directory")
    with pipeline_errors():
        if (path / "_delta_log").is_dir():
            outcome = delta.compact(str(path), target_mb << 20, keep_hours)
            click.echo(f"{outcome['numFilesRemoved']} files became {outcome['numFilesAdded']}")
            return
        result = parquet.compact(path, target_mb << 20, files_min, dry_run=dry_run)
    verb = "would become" if dry_run else "became"
    click.echo(
        f"{result.partitions} partitions: {result.files_before} files {verb} {result.files_after}"
    )


def _compact_iceberg(
    file: Path, parameters: tuple[str, ...], sink: str, target_bytes: int, files_min: int,
    keep_hours: int | None, dry_run: bool,
) -> None:  # fmt: skip
    from headrace.pipeline.config.errors import PipelineError
    from headrace.pipeline.config.load import load
    from headrace.pipeline.config.settings import IcebergSink
    from headrace.pipeline.iceberg import upkeep
    from headrace.pipeline.iceberg.table import IcebergTable

    with pipeline_errors():
        pipeline = load(file, parse_parameters(parameters))
        settings = pipeline.sinks.get(sink)
        if not isinstance(settings, IcebergSink):
            raise PipelineError(f"{file} has no sink {sink!r} of type iceberg")
        table = IcebergTable(pipeline, settings.catalog, settings.table)
        if not dry_run:
            result = upkeep.compact(table, target_bytes, files_min)
            click.echo(f"{result.files_before} files became {result.files_after}")
        if keep_hours is not None:
            snapshots, files = upkeep.expire_snapshots(table, keep_hours, dry_run=dry_run)
            verb = "would be deleted" if dry_run else "deleted"
            click.echo(f"{snapshots} snapshots and {files} files {verb}")
