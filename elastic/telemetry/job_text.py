"""What a job is, as TensorBoard shows it beside its curves. Pure."""

from elastic.spec.job import JobSpec


def job_text(spec: JobSpec) -> str:
    """The settings of a job that are not the defaults, as a Markdown table."""
    given = spec.model_dump(mode="json", exclude_defaults=True)
    rows = [f"| {name} | {_cell(value)} |" for name, value in sorted(given.items())]
    return "\n".join(["| setting | value |", "| --- | --- |", *rows])


def _cell(value: object) -> str:
    if isinstance(value, dict):
        value = ", ".join(f"{name}={item}" for name, item in value.items())
    text = " ".join(str(value).split()).replace("|", "\\|").replace("`", "'")
    return f"`{text}`"
