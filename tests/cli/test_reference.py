from pathlib import Path

import elastic
from elastic.cli.reference import reference
from elastic.spec.job import JobSpec

FLAGS_PATH = Path(elastic.__file__).parents[1] / "docs" / "flags.md"


def test_the_reference_is_current():
    assert FLAGS_PATH.read_text(encoding="utf-8") == reference(), (
        "write it anew: python -m elastic.cli.reference > docs/flags.md"
    )


def test_the_reference_names_every_setting():
    text = reference()
    assert [name for name in JobSpec.model_fields if f"| `{name}`" not in text] == []
