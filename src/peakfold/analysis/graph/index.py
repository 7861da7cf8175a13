"""One cached index of a graph: names become dense ids, edges become arrays.

Every analysis reads this instead of names and records, so that a graph of 10^6 ops costs
lists of integers. Tensor ids follow `Graph.tensors`, op ids follow `Graph.ops`.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from peakfold.errors import ModelError
from peakfold.ir import Graph, Role, Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """A graph as arrays.

    Attributes:
        operands: per op, ids of the tensors it reads (captures included), each once.
        results: per op, ids of the tensors it makes.
        producer: per tensor, the op that makes it, or -1.
        first_user, users: consumers in CSR form: ops that read tensor t, in file order, are
            ``users[first_user[t]:first_user[t + 1]]``.
        nbytes: per tensor, exact bytes; 0 where `opaque`.
        opaque: ids of tensors whose size no graph states (strings, sequences, maps), and in a
            partial index those whose shape is not known.
        inputs, outputs: ids in signature order.
        static: per tensor, whether it is allocated once, outside every arena.
    """

    graph: Graph
    id_of: dict[str, int]
    operands: list[tuple[int, ...]]
    results: list[tuple[int, ...]]
    producer: list[int]
    first_user: array[int]
    users: array[int]
    nbytes: list[int]
    opaque: frozenset[int]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    static: list[bool]

    @classmethod
    def of(cls, graph: Graph, *, partial: bool = False) -> Index:
        """Build the index.

        Args:
            graph: a checked graph.
            partial: also index results whose size is not known, as `opaque`; for accounts that
                say what they leave out, never for plans.

        Raises:
            ModelError: a tensor whose size is not known; names it and what would fix it.

        Example:
            >>> from peakfold.ir import parse_graph
            >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4]\\n"
            ...                 "y: int8[4] = relu(x)\\noutput y")
            >>> index = Index.of(g)
            >>> index.nbytes, index.operands, list(index.users)
            ([4, 4], [(0,)], [0])
        """
        id_of = {tensor.name: at for at, tensor in enumerate(graph.tensors)}
        operands = [tuple(dict.fromkeys(id_of[n] for n in op.operands)) for op in graph.ops]
        results = [tuple(id_of[n] for n in op.results) for op in graph.ops]
        producer = [-1] * len(graph.tensors)
        for at, made in enumerate(results):
            for tensor in made:
                producer[tensor] = at
        first_user, users = _transpose(operands, len(graph.tensors))
        bound = not any(isinstance(d, str) for n in graph.inputs for d in graph[n].shape or ())
        opaque = frozenset(
            at
            for at, t in enumerate(graph.tensors)
            if is_opaque(t) or (partial and bound and producer[at] >= 0 and t.nbytes is None)
        )
        return cls(
            graph=graph,
            id_of=id_of,
            operands=operands,
            results=results,
            producer=producer,
            first_user=first_user,
            users=users,
            nbytes=_sizes(graph, opaque),
            opaque=opaque,
            inputs=tuple(id_of[n] for n in graph.inputs),
            outputs=tuple(id_of[n] for n in graph.outputs),
            static=[t.role.static for t in graph.tensors],
        )

    def name(self, tensor: int) -> str:
        """The name of a tensor id."""
        return self.graph.tensors[tensor].name

    def users_of(self, tensor: int) -> array[int]:
        """Ops that read a tensor, in file order."""
        return self.users[self.first_user[tensor] : self.first_user[tensor + 1]]


def _transpose(rows: list[tuple[int, ...]], columns: int) -> tuple[array[int], array[int]]:
    """CSR of the transposed relation."""
    first = array("q", bytes(8 * (columns + 1)))
    for row in rows:
        for column in row:
            first[column + 1] += 1
    for column in range(columns):
        first[column + 1] += first[column]
    at = array("q", first)
    users = array("q", bytes(8 * first[columns]))
    for number, row in enumerate(rows):
        for column in row:
            users[at[column]] = number
            at[column] += 1
    return first, users


def is_opaque(tensor: Tensor) -> bool:
    """Whether no graph can state the size of such a value: strings, sequences, maps."""
    return (
        tensor.stated_bytes is None
        and tensor.dtype.bits is None
        and (tensor.shape is not None or tensor.dtype.name == "string")
    )


def _sizes(graph: Graph, opaque: frozenset[int]) -> list[int]:
    sizes: list[int] = []
    for at, tensor in enumerate(graph.tensors):
        nbytes = tensor.nbytes
        if nbytes is None and at not in opaque:
            raise missing_size(graph, tensor)
        sizes.append(nbytes or 0)
    return sizes


def missing_size(graph: Graph, tensor: Tensor) -> ModelError:
    """The error for a tensor whose size is not known, with the option that fixes it."""
    for name in graph.inputs:
        symbols = [d for d in graph[name].shape or () if isinstance(d, str)]
        if symbols:
            flags = " ".join(f"--dim {symbol}=N" for symbol in dict.fromkeys(symbols))
            dims = "x".join("N" if isinstance(d, str) else str(d) for d in graph[name].shape or ())
            return ModelError(
                f"input has unbound dimensions {', '.join(dict.fromkeys(symbols))}",
                where=f"tensor {name!r}",
                hint=f"pass {flags}, or --shape {name}={dims}",
            )
    at = graph.producer.get(tensor.name)
    maker = "" if at is None else f", made by op {graph.ops[at].name!r} ({graph.ops[at].kind})"
    kind = "dtype:" if tensor.dtype.bits is None else ""
    if at is not None and graph.ops[at].kind == "loop" and "trips" not in graph.ops[at].attrs:
        maker += ", whose trip count is not known before the run"
    return ModelError(
        f"its shape is not known{maker}",
        where=f"tensor {tensor.name!r}",
        hint=f"pass --shape {tensor.name}={kind}AxBxC",
    )


def static_bytes(graph: Graph) -> dict[Role, int]:
    """Bytes by static role, regions included, each tensor once (R7 to R12).

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\nparameter w: float32[3]\\noutput w")
        >>> static_bytes(g)[Role.PARAMETER]
        12
    """
    totals = {role: 0 for role in Role if role.static}
    for tensor in graph.tensors:
        if tensor.role.static and tensor.name not in graph.inputs:
            totals[tensor.role] += tensor.nbytes or 0
    for op in graph.ops:
        for region in op.regions:
            for role, nbytes in static_bytes(region.graph).items():
                totals[role] += nbytes
    return totals
