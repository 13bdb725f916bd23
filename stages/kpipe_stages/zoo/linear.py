"""Matrices: products, decompositions; signals; attention as an op."""

from __future__ import annotations

from kpipe_stages.zoo.case import DEFINITE, MATRIX, SQUARE, VECTOR, Given, Unit, family, op

RIGHT = Given((5, 3))
HEADS = Given((5, 2, 4))
SOUND = Given((64,), draw="unit")
TRIPLE = Given((3,))

UNITS: tuple[Unit, ...] = (
    family(
        "products",
        op("matmul", MATRIX, RIGHT),
        ("einsum", lambda k, a, b: k.ops.einsum("bij,bjk->bik", a, b), (MATRIX, RIGHT)),
        ("dot", lambda k, x: k.ops.dot(x, k.ops.convert_to_tensor([[1.0, 2.0]] * 8)), (VECTOR,)),
        ("tensordot", lambda k, x: k.ops.tensordot(x, k.ops.convert_to_tensor([[1.0, 2.0]] * 5), axes=1), (MATRIX,)),
        ("inner", lambda k, x: k.ops.expand_dims(k.ops.inner(x[0], k.ops.convert_to_tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])), 0), (VECTOR,)),
        ("outer", lambda k, a, b: k.ops.expand_dims(k.ops.outer(a, b), 0), (VECTOR, VECTOR)),
        op("cross", TRIPLE, TRIPLE),
        ("kron", lambda k, x: k.ops.expand_dims(k.ops.kron(x[0], k.ops.convert_to_tensor([[1.0, 2.0]])), 0), (MATRIX,)),
        ("vdot", lambda k, a, b: k.ops.expand_dims(k.ops.vdot(a, b), 0), (VECTOR, VECTOR)),
        ("cdist", lambda k, a, b: k.ops.cdist(a, b), (MATRIX, MATRIX)),
        op("matmul", Given((4, 5), "int32", "whole"), Given((5, 3), "int32", "whole"), title="int32"),
    ),
    family(
        "decompositions",
        op("cholesky", DEFINITE),
        ("cholesky_inverse", lambda k, x: k.ops.expand_dims(k.ops.cholesky_inverse(x[0]), 0), (DEFINITE,)),
        ("qr", lambda k, x: k.ops.abs(k.ops.qr(x)[1]), (SQUARE,)),
        ("svd", lambda k, x: k.ops.svd(x, compute_uv=False), (SQUARE,)),
        ("eigh", lambda k, x: k.ops.eigh(x)[0], (DEFINITE,)),
        ("lu_factor", lambda k, x: k.ops.lu_factor(x)[0], (DEFINITE,)),
        dtypes=(),
    ),
    family(
        "equations",
        op("inv", DEFINITE),
        op("det", DEFINITE),
        op("logdet", DEFINITE),
        ("slogdet", lambda k, x: list(k.ops.slogdet(x)), (DEFINITE,)),
        op("pinv", DEFINITE),
        op("solve", DEFINITE, Given((4, 2))),
        op("solve_triangular", DEFINITE, Given((4, 2)), lower=True),
        ("lstsq", lambda k, a, b: k.ops.expand_dims(k.ops.lstsq(a[0], b[0]), 0), (DEFINITE, Given((4, 2)))),
        op("matrix_rank", DEFINITE),
        op("norm", MATRIX, axis=-1),
        dtypes=(),
    ),
    family(
        "signals",
        ("stft", lambda k, x: list(k.ops.stft(x, 16, 8, 16)), (SOUND,)),
        ("rfft", lambda k, x: list(k.ops.rfft(x)), (SOUND,)),
        ("irfft", lambda k, x: k.ops.irfft(k.ops.rfft(x)), (SOUND,)),
        ("istft", lambda k, x: k.ops.istft(k.ops.stft(x, 16, 8, 16), 16, 8, 16), (SOUND,)),
        op("extract_sequences", SOUND, sequence_length=16, sequence_stride=8),
        dtypes=(),
    ),
    family(
        "attention",
        ("dot_product_attention", lambda k, q, v: k.ops.dot_product_attention(q, v, v), (HEADS, HEADS)),
        ("dot_product_attention, causal", lambda k, q: k.ops.dot_product_attention(q, q, q, is_causal=True), (HEADS,)),
    ),
    family(
        "decoding",
        ("ctc_decode", lambda k, x, n: k.ops.ctc_decode(x, n, strategy="greedy")[1], (Given((6, 4)), Given((), "int32", "ids:6"))),
        dtypes=(),
    ),
)
