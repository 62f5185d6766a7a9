"""YAML as people mean it: safe, and without the surprises of YAML 1.1.

`2:8` is text and not 128 (base 60), `1e-3` is a number and not text, `2020-01-01` is text and not
a date that JSON would not bring back, and a key given twice is an error. What is written is read
back as it was, here and by other YAML readers.
"""

import re
from typing import Any, Final, TypeAlias

import yaml

_Resolvers: TypeAlias = dict[str | None, list[tuple[str, re.Pattern[str]]]]
"""First character of a plain text → (tag, pattern), in order of precedence."""
_NO_FOLDING: Final = 10_000
_INT: Final = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT: Final = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan", re.IGNORECASE
)
_INT_TAG: Final = "tag:yaml.org,2002:int"
_FLOAT_TAG: Final = "tag:yaml.org,2002:float"
_DROPPED_TAGS: Final = frozenset({_INT_TAG, _FLOAT_TAG, "tag:yaml.org,2002:timestamp"})


def _plain_resolvers() -> _Resolvers:
    """PyYAML's table with our numbers for its own."""
    table = {
        first: [(tag, pattern) for tag, pattern in rules if tag not in _DROPPED_TAGS]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for tag, pattern in ((_INT_TAG, _INT), (_FLOAT_TAG, _FLOAT)):
        whole = re.compile(rf"(?:{pattern.pattern})$", pattern.flags)
        for first in "-+.0123456789":
            table.setdefault(first, []).append((tag, whole))
    return table


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = _plain_resolvers()

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} comes twice", key_node.start_mark
                )
            if key is not None:
                seen.add(key)
        return super().construct_mapping(node, deep)


def _construct_int(_loader: _Loader, node: yaml.ScalarNode) -> int:
    text: str = node.value
    return int(text, 0) if text.startswith(("0x", "0o")) else int(text)


def _construct_float(_loader: _Loader, node: yaml.ScalarNode) -> float:
    return float(node.value.lower().replace(".inf", "inf").replace(".nan", "nan"))


_Loader.add_constructor(_INT_TAG, _construct_int)
_Loader.add_constructor(_FLOAT_TAG, _construct_float)


def _quoting_resolvers() -> _Resolvers:
    """Text is quoted where our rules or those of YAML 1.1 would take it for something else."""
    old = yaml.SafeDumper.yaml_implicit_resolvers
    return {first: [*old.get(first, []), *rules] for first, rules in _plain_resolvers().items()}


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = _quoting_resolvers()

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # PyYAML writes some line separators as they are, and reads them back as line ends.
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def load_value(text: str) -> Any:
    """Read one YAML document.

    Raises:
        yaml.YAMLError: The text is not YAML, or names a key twice.
    """
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader


def dump_value(value: Any) -> str:
    """Write a value so that `load_value` gives it back."""
    return yaml.dump(
        value,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=_NO_FOLDING,
    )
