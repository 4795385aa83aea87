"""YAML with the line of every value, and without its traps: duplicate keys, alias bombs, dates, tabs."""

from __future__ import annotations

from dataclasses import dataclass, field

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from adapters.policy_file.problems import Problem

Path = tuple[str | int, ...]

MAX_VALUES = 50_000
"""Values in one policy, aliases expanded; a file of aliases to aliases grows without bound otherwise."""

_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null"))


@dataclass
class Document:
    """A YAML document as plain data.

    Attributes:
        data: mappings, lists and scalars.
        lines: line of each value, from 1, by its path.
        problems: what is wrong with the YAML itself.
    """

    data: object = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line_of(self, path: Path) -> int:
        """Return the line of the value at a path, or of the nearest one around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_document(text: str) -> Document:
    """Return the document in a text; what is wrong with it is in ``problems``, never an exception."""
    document = Document()
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is not None:
            document.data = _Reader(loader, document).read(root, (), ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        document.problems.append(Problem(mark.line + 1 if mark else 1, "", _in_words(error)))
    except yaml.YAMLError as error:
        document.problems.append(Problem(1, "", f"no valid YAML: {error}".splitlines()[0]))
    except RecursionError:
        document.problems.append(Problem(1, "", "nested too deeply for a policy"))
    finally:
        loader.dispose()
    return document


class _Loader(yaml.SafeLoader):
    """The safe loader; dates and base-60 numbers are left as the text that a person typed."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Reader:
    def __init__(self, loader: _Loader, document: Document) -> None:
        self._loader = loader
        self._document = document
        self._values = 0

    def read(self, node: Node, path: Path, above: tuple[int, ...]) -> object:
        self._values += 1
        if self._values > MAX_VALUES:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_VALUES} values", problem_mark=node.start_mark)
        if id(node) in above:
            raise yaml.MarkedYAMLError(problem="an alias contains itself", problem_mark=node.start_mark)
        self._document.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, MappingNode):
            return self._mapping(node, path, (*above, id(node)))
        if isinstance(node, SequenceNode):
            return [self.read(item, (*path, index), (*above, id(node))) for index, item in enumerate(node.value)]
        assert isinstance(node, ScalarNode)
        if node.tag not in _PLAIN_TAGS:
            self._say(node, path, f"the YAML tag {node.tag!r} has no place in a policy")
            return None
        return self._scalar(node, path)

    def _mapping(self, node: MappingNode, path: Path, above: tuple[int, ...]) -> dict[str, object]:
        found: dict[str, object] = {}
        first_line: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self._say(key_node, path, "a key is a plain word")
                continue
            key = str(key_node.value)
            if key == "<<":
                self._say(key_node, path, "merge keys (<<) are not read: write the entries out")
                continue
            if key in found:
                self._say(
                    key_node,
                    (*path, key),
                    f"given twice, first in line {first_line[key]}: YAML would silently keep only one",
                )
                continue
            first_line[key] = line
            self._document.lines[(*path, key)] = line
            found[key] = self.read(value_node, (*path, key), above)
        return found

    def _scalar(self, node: ScalarNode, path: Path) -> object:
        try:
            return self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            self._say(node, path, f"cannot be read: {error}".splitlines()[0])
            return None

    def _say(self, node: Node, path: Path, message: str) -> None:
        self._document.problems.append(Problem(node.start_mark.line + 1, in_words(path), message))


def in_words(path: Path) -> str:
    """Return a path as people write it: ``rules[2].match.severity``."""
    words = ""
    for part in path:
        words += f"[{part}]" if isinstance(part, int) else f".{part}" if words else part
    return words


def _in_words(error: yaml.MarkedYAMLError) -> str:
    said = error.problem or "cannot be read"
    if "'\\t'" in said or "\\t" in said:
        return "a tab: YAML is indented with spaces only"
    context = f" {error.context}" if error.context else ""
    return f"no valid YAML{context}: {said}"
