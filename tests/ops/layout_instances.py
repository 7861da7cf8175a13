"""Generated instances of ops that move or keep bytes: reshape family, slices, joins.

Operands hold distinct values, so equal bytes mean equal positions.
"""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from .instances import floats, make
from .proofs import Instance


def index(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def nibbles(shape: tuple[int, ...]) -> np.ndarray:
    return (np.arange(np.prod(shape)) % 16).reshape(shape).astype(ml_dtypes.uint4)


def reshapes() -> Iterator[Instance]:
    for shape in ((2, 3, 4), (1, 6, 1), (4,), (1, 1)):
        x = floats(shape)
        yield make("Reshape", x, index(-1))
        yield make("Reshape", x, index(0, -1), opset=13)
        yield make("Flatten", x, axis=0)
        yield make("Flatten", x)
        yield make("Identity", x)
        yield make("Unsqueeze", x, index(0, 2), opset=13)
        yield make("Unsqueeze", x, opset=11, axes=[0])
        yield make("Unsqueeze", x, index(-1), opset=13)
    for axes in ((0,), (0, 2), (-1,)):
        yield make("Squeeze", floats((1, 3, 1)), index(*axes), opset=13)
        yield make("Squeeze", floats((1, 3, 1)), opset=11, axes=list(axes))
    yield make("Squeeze", floats((1, 3, 1)), opset=13)
    yield make("Reshape", nibbles((3, 3)), index(9), opset=21)


def permutations() -> Iterator[Instance]:
    for shape in ((2, 3), (1, 3, 2), (2, 1, 3), (1, 1, 4), (2, 3, 1, 1)):
        x = floats(shape)
        rank = len(shape)
        yield make("Transpose", x)
        for seed in range(6):
            perm = np.random.default_rng(seed).permutation(rank)
            yield make("Transpose", x, perm=perm.tolist())
    for shape in ((1, 4, 2, 2), (2, 4, 4, 4)):
        for block in (1, 2):
            yield make("DepthToSpace", floats(shape), blocksize=block)
            yield make("SpaceToDepth", floats(shape), blocksize=block)


def repetitions() -> Iterator[Instance]:
    for shape in ((3,), (1, 3), (2, 1, 2)):
        x = floats(shape)
        ones = (1,) * len(shape)
        for target in ((1, *shape), ones, (2, *shape), (*shape[:-1], max(shape[-1], 3))):
            if shape[-1] in (1, target[-1]) or target[-1] == 1:
                yield make("Expand", x, index(*target))
        yield make("Tile", x, index(*ones))
        yield make("Tile", x, index(*ones[:-1], 2))
    x = floats((1, 1, 4, 3))
    for mode in ("nearest", "linear", "cubic"):
        for how in (
            "half_pixel",
            "asymmetric",
            "align_corners",
            "pytorch_half_pixel",
            "half_pixel_symmetric",
        ):
            more = {"mode": mode, "coordinate_transformation_mode": how}
            one = np.ones(4, np.float32)
            yield make("Resize", x, None, one, opset=19, **more)
            yield make("Resize", x, None, None, index(1, 1, 4, 3), opset=19, **more)
            yield make("Resize", x, None, None, index(4, 3), opset=19, axes=[2, 3], **more)
            yield make("Resize", x, None, None, index(1, 1, 8, 3), opset=19, **more)
            yield make("Resize", x, None, one, opset=19, antialias=int(mode != "nearest"), **more)
            yield make("Resize", x, None, one, opset=19, exclude_outside=1, **more)
            slightly = np.array([1, 1, 1.1, 1], np.float32)
            yield make("Resize", x, None, slightly, opset=19, **more)
    # No reference kernel of version 10, whose second operand is the scales.
    yield make("Resize", x, np.ones(4, np.float32), opset=10, truth=lambda v, _: (v.copy(),))
    crop = np.array([0, 0, 0.2, 0.1, 1, 1, 0.8, 0.9], np.float32)
    yield make(
        "Resize",
        x,
        crop,
        None,
        index(1, 1, 4, 3),
        opset=19,
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
    )
    yield make("Upsample", x, np.ones(4, np.float32), opset=9, truth=lambda v, _: (v.copy(),))
    yield make("Upsample", x, opset=7, scales=[1.0] * 4, truth=lambda v: (v.copy(),))


def slices() -> Iterator[Instance]:
    rng = np.random.default_rng(7)
    for shape in ((6,), (4, 3), (1, 5), (1, 4, 3), (2, 3, 2)):
        x = floats(shape)
        for _ in range(40):
            count = int(rng.integers(1, len(shape) + 1))
            axes = rng.permutation(len(shape))[:count]
            steps = rng.choice([1, 1, 1, 2, -1], count)
            starts, ends = rng.integers(-3, 5, count), rng.integers(-3, 9, count)
            starts = np.where(steps < 0, np.abs(starts), starts)
            ends = np.where(steps < 0, -np.abs(ends) - 9, ends)
            yield make(
                "Slice", x, index(*starts), index(*ends), index(*axes), index(*steps), opset=13
            )
            if (steps == 1).all():
                yield make(
                    "Slice",
                    x,
                    opset=9,
                    starts=starts.tolist(),
                    ends=ends.tolist(),
                    axes=axes.tolist(),
                )
    for shape in ((8,), (4, 3), (4, 2)):
        for start in range(4):
            for stop in range(start + 1, 5):
                yield make(
                    "Slice",
                    nibbles(shape),
                    index(start),
                    index(stop),
                    opset=13,
                    truth=lambda v, a, b: (v[a[0] : b[0]],),
                )


def cuts() -> Iterator[Instance]:
    for shape, axis in (((6, 2), 0), ((1, 6, 2), 1), ((2, 6), 1), ((1, 1, 6), -1)):
        x = floats(shape)
        yield make("Split", x, index(1, 2, 3), opset=13, outputs=3, axis=axis)
        yield make("Split", x, opset=11, outputs=2, axis=axis, split=[2, 4])
        yield make("Split", x, opset=13, outputs=3, axis=axis)
        yield make("Split", x, opset=18, outputs=4, axis=axis, num_outputs=4)
        yield make("Split", x, index(0, 6), opset=13, outputs=2, axis=axis)
    parts = index(1, 2, 3)
    yield make(
        "Split",
        nibbles((6,)),
        parts,
        opset=18,
        outputs=3,
        truth=lambda v, _: (v[:1], v[1:3], v[3:]),
    )
    yield make(
        "Split",
        nibbles((3, 2)),
        index(1, 2),
        opset=18,
        outputs=2,
        truth=lambda v, _: (v[:1], v[1:]),
    )
    for shape in ((3,), (2, 3), (1, 4, 2)):
        zeros = [0] * (2 * len(shape))
        yield make("Pad", floats(shape), index(*zeros), opset=13)
        yield make("Pad", floats(shape), opset=2, pads=zeros)
        yield make("Pad", floats(shape), index(*zeros[:-1], 1), opset=13)
        yield make(
            "Pad", floats(shape), index(*zeros[1:], 0), None, index(*range(len(shape))), opset=18
        )
    for pads in ((-1, 0, 0, 0), (0, -1, 0, 0), (-1, 0, -1, 0), (-2, -1, 0, -1), (-1, 0, 1, 0)):
        yield make("Pad", floats((4, 3)), index(*pads), opset=13, truth=cropped)


def cropped(x, pads):
    """Constant padding where negative amounts cut; the reference kernel only adds."""
    before, after = pads[: x.ndim], pads[x.ndim :]
    cut = x[
        tuple(
            slice(max(-b, 0), n - max(-a, 0))
            for b, a, n in zip(before, after, x.shape, strict=True)
        )
    ]
    grown = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    return (np.pad(cut, grown),)


def layouts() -> Iterator[Instance]:
    for group in (reshapes, permutations, repetitions, slices, cuts):
        yield from group()


def joins() -> Iterator[Instance]:
    for head, axis in (((), 0), ((1,), 1), ((2,), 1), ((1, 1), -2)):
        parts = [floats((*head, n, 2), n) for n in (2, 1, 3)]
        yield make("Concat", *parts, axis=axis)
        yield make("Concat", parts[0], axis=axis)
        yield make("Concat", parts[0], floats((*head, 0, 2)), parts[1], axis=axis)
    for element in (np.float16, np.int64, np.uint8, np.bool_):
        parts = [(floats((1, n, 3), n) * 90).astype(element) for n in (2, 1, 3)]
        yield make("Concat", *parts, axis=1)
        yield make("Concat", *parts[:1], *parts[:1], axis=2)
    bits = nibbles((2,)), nibbles((3,)), nibbles((1,))
    for order in ((0, 1, 2), (1, 0, 2), (0, 1), (1, 2)):
        yield make(
            "Concat",
            *(bits[at] for at in order),
            axis=0,
            opset=24,
            truth=lambda *v: (np.concatenate(v),),
        )
