"""The small changes of a module, one at a time: its mutants, as mutmut makes them.

mutmut writes for each function all its changed copies. It leaves out functions with a decorator, since it would have to
call that anew. Here a function keeps its decorator and gets other code (:mod:`tests.mutants.trial`): so decorators are
taken away before mutmut reads the source, and cached functions and properties are changed too.

Some changes are dropped before any test, because no test ought to see them: :data:`DROPPED` says which.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Final

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class _HideSentences(ast.NodeTransformer):
    """Texts with a space in what is raised, and what stands for one."""

    def __init__(self) -> None:
        self._raised = False

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        self._raised = True
        try:
            return self.generic_visit(node)
        finally:
            self._raised = False

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return ast.Constant("") if self._raised else node

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        sentence = node.value is None or (isinstance(node.value, str) and " " in node.value)
        return ast.Constant("") if self._raised and sentence else node


class _HideCasts(ast.NodeTransformer):
    """The first argument of cast()."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "cast" and node.args:
            node.args[0] = ast.Constant(None)
        return self.generic_visit(node)


class _HideStrict(ast.NodeTransformer):
    """The keyword ``strict``."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords = [one for one in node.keywords if one.arg != "strict"]
        return self.generic_visit(node)


DROPPED: Final[dict[str, type[ast.NodeTransformer]]] = {
    "sentences that an error tells (its code and field are changed)": _HideSentences,
    "the type that cast() names": _HideCasts,
    "zip's strict, which states what types and checks make so": _HideStrict,
}
"""Kinds of changes that are dropped: what the two sources do not differ in once it is hidden."""


@dataclass(frozen=True)
class Change:
    """One mutant.

    Attributes:
        place: its number among the changes of the function.
        was: the lines that differ, as they are, without indentation; ``now`` as they were changed.
        lines: of the changed statement, in the source file; none where the head of the function is changed.
        text: the whole function as changed, without decorators.
        dropped: under which kind, or None.
    """

    place: int
    was: str
    now: str
    lines: tuple[int, ...]
    text: str
    dropped: str | None


@dataclass(frozen=True)
class Function:
    """A function and its changes.

    Attributes:
        name: dotted, its module's included; ``qualname`` without.
        digest: of its code without docstring and comments: what was decided of a change holds while this is the same.
        body: the numbers of its lines.
        source: its lines, without decorators.
        decorators: the lines above it.
    """

    path: Path
    name: str
    qualname: str
    digest: str
    body: range
    source: str
    decorators: tuple[str, ...]
    changes: tuple[Change, ...]

    @property
    def module(self) -> str:
        """The dotted name of its module."""
        return self.name.removesuffix(f".{self.qualname}")

    def compiled(self, text: str) -> CodeType:
        """The code of the function with this source."""
        holder, _, name = self.qualname.rpartition(".")
        body = f"class {holder}:\n{text}" if holder else text
        module = compile(f"from __future__ import annotations\n{body}\n", str(self.path), "exec", dont_inherit=True)
        (outer,) = (one for one in module.co_consts if isinstance(one, CodeType) and one.co_name in {holder, name})
        inner = [one for one in outer.co_consts if isinstance(one, CodeType) and one.co_name == name]
        return inner[-1] if holder else outer


def functions(path: Path) -> list[Function]:
    """All functions of a module that have changes, in their order."""
    source = path.read_text(encoding="utf-8")
    nodes = dict(_nodes(source))
    made: Any = importlib.import_module("mutmut.mutation.file_mutation").mutate_file_contents(
        str(path), _undecorated(source, nodes.values())
    )
    lines = made.code.splitlines()
    texts = {
        name: "\n".join(lines[span.start - 1 : span.end]) for name, span in made.line_span_by_function_name.items()
    }
    found = (_function(path, source.splitlines(), qualname, node, texts) for qualname, node in nodes.items())
    return sorted((one for one in found if one.changes), key=lambda one: one.body.start)


def module_name(path: Path) -> str:
    """The dotted name of a source file."""
    return ".".join((*path.parts[:-1], path.stem)).removesuffix(".__init__")


def _nodes(source: str) -> Iterator[tuple[str, FunctionNode]]:
    body = ast.parse(source).body
    held = [("", one) for one in body]
    held += [(f"{holder.name}.", one) for holder in body if isinstance(holder, ast.ClassDef) for one in holder.body]
    for holder, node in held:
        if isinstance(node, FunctionNode):
            yield holder + node.name, node


def _undecorated(source: str, nodes: Iterable[FunctionNode]) -> str:
    """The source without decorators of functions, line by line the same."""
    lines = source.splitlines()
    for node in nodes:
        for at in range(_first_line(node), node.lineno):
            lines[at - 1] = ""
    return "\n".join(lines) + "\n"


def _first_line(node: FunctionNode) -> int:
    return min([node.lineno, *(one.lineno for one in node.decorator_list)])


def _function(path: Path, source: list[str], qualname: str, node: FunctionNode, texts: dict[str, str]) -> Function:
    holder, _, short = qualname.rpartition(".")
    mangled = f"xǁ{holder}ǁ{short}__mutmut_" if holder else f"x_{short}__mutmut_"
    end = node.end_lineno or node.lineno
    original = source[node.lineno - 1 : end]
    changes: list[Change] = []
    while (text := texts.get(f"{mangled}{len(changes) + 1}")) is not None:
        place = len(changes) + 1
        lines = text.replace(f"{mangled}{place}", short, 1).splitlines()
        start = next(at for at, line in enumerate(lines) if line.lstrip().startswith(("def ", "async def ")))
        changes.append(_change(place, original, lines[start:], node))
    return Function(
        path=path,
        name=f"{module_name(path)}.{qualname}",
        qualname=qualname,
        digest=digest(node),
        body=range(node.lineno, end + 1),
        source="\n".join(original),
        decorators=tuple(source[_first_line(node) - 1 : node.lineno - 1]),
        changes=tuple(changes),
    )


def digest(node: FunctionNode) -> str:
    """Of a function's code, decorators included, and of no word of its docstring and comments."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    bare = type(node)(**{**{field: getattr(node, field) for field in node._fields}, "body": body or [ast.Pass()]})
    return hashlib.sha256(ast.unparse(ast.copy_location(bare, node)).encode()).hexdigest()[:12]


def _change(place: int, before: list[str], after: list[str], node: FunctionNode) -> Change:
    same = next((at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    tail = 0
    while tail < min(len(before), len(after)) - same - 1 and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    return Change(
        place=place,
        was=" ".join(line.strip() for line in before[same : len(before) - tail]),
        now=" ".join(line.strip() for line in after[same : len(after) - tail]),
        lines=statement_lines(node, node.lineno + same),
        text="\n".join(after),
        dropped=dropped_as("\n".join(before), "\n".join(after)),
    )


def statement_lines(node: FunctionNode, changed: int) -> tuple[int, ...]:
    """The lines of the innermost statement that holds a line; of one with a body those of its head."""
    found: tuple[int, ...] = ()
    for one in ast.walk(node):
        if one is not node and isinstance(one, ast.stmt):
            body = [*getattr(one, "body", ()), *getattr(one, "cases", ())]
            stop = min((_line(inner) for inner in body), default=(one.end_lineno or one.lineno) + 1)
            lines = tuple(range(one.lineno, max(stop, one.lineno + 1)))
            if changed in lines:
                found = lines
    return found


def _line(node: ast.stmt | ast.match_case) -> int:
    return node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno


def dropped_as(before: str, after: str) -> str | None:
    """The kind under which a change is dropped, None if it is tried."""
    for kind, hide in DROPPED.items():
        trees = [ast.dump(hide().visit(ast.parse(textwrap.dedent(text)))) for text in (before, after)]
        if trees[0] == trees[1]:
            return kind
    return None
