"""Ops that work number by number."""

from __future__ import annotations

from kpipe_stages.zoo.case import MATRIX, NATURAL, POSITIVE, TRUTH, UNIT, VECTOR, WHOLE, Config, Given, Unit, family, op

WIDE = Given((8,), draw="wide")
ABOVE_ONE = Given((8,), draw="above_one")
SPECIAL = Given((9,), draw="special")
SHIFTS = Given((8,), "int32", "ids:5")
NONZERO = Given((8,), "int32", "natural")


def _each(given: tuple[Given, ...], *names: str, title: str = "") -> list[Config]:
    return [op(name, *given, title=title) for name in names]


UNITS: tuple[Unit, ...] = (
    family(
        "arithmetic",
        *_each((VECTOR, VECTOR), "add", "subtract", "multiply", "divide", "true_divide", "divide_no_nan", "maximum", "minimum", "fmax", "fmin"),
        dtypes=("float16", "int32", "bfloat16"),
    ),
    family(
        "arithmetic of integers",
        *_each((WHOLE, WHOLE), "add", "subtract", "multiply", "divide", "maximum", title="int32"),
        op("negative", WHOLE, title="int32"),
        op("abs", WHOLE, title="int32"),
        *_each((WHOLE.of("int64"), WHOLE.of("int64")), "add", "multiply", title="int64"),
        op("add", Given((8,), "uint8", "ids:100"), Given((8,), "uint8", "ids:100"), title="uint8"),
        dtypes=(),
    ),
    family(
        "division with a rest",
        *_each((WIDE, POSITIVE), "floor_divide", "mod", "fmod"),
        *_each((WHOLE, NONZERO), "floor_divide", "mod", "fmod", title="int32"),
        *_each((NONZERO, NONZERO), "gcd", "lcm"),
    ),
    family(
        "signs",
        *_each((VECTOR,), "abs", "absolute", "fabs", "negative", "sign", "signbit", "square", "reciprocal"),
        op("heaviside", VECTOR, VECTOR),
        names=(),
    ),
    family("rounding", *_each((WIDE,), "ceil", "floor", "round", "trunc"), op("round", Given((8,), draw="whole"), title="whole")),
    family(
        "powers and roots",
        *_each((POSITIVE,), "sqrt", "rsqrt", "cbrt"),
        op("power", POSITIVE, VECTOR),
        op("hypot", VECTOR, VECTOR),
        op("ldexp", VECTOR, SHIFTS),
    ),
    family(
        "exponentials and logarithms",
        *_each((VECTOR,), "exp", "exp2", "expm1"),
        *_each((POSITIVE,), "log", "log10", "log1p", "log2"),
        *_each((VECTOR, VECTOR), "logaddexp", "logaddexp2"),
    ),
    family(
        "trigonometry",
        *_each((WIDE,), "sin", "cos", "tan", "deg2rad", "rad2deg", "sinc"),
        *_each((UNIT,), "arcsin", "arccos"),
        op("arctan", VECTOR),
        op("arctan2", VECTOR, VECTOR),
    ),
    family("hyperbolic functions", *_each((VECTOR,), "sinh", "cosh", "tanh", "arcsinh"), op("arccosh", ABOVE_ONE), op("arctanh", UNIT)),
    family("special functions", *_each((VECTOR,), "erf", "erfc", "i0"), op("erfinv", UNIT)),
    family(
        "comparison",
        *_each((VECTOR, VECTOR), "less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "isclose"),
        *_each((NATURAL, NATURAL), "equal", "less", title="int32"),
        op("allclose", VECTOR, VECTOR),
    ),
    family("logic", *_each((TRUTH, TRUTH), "logical_and", "logical_or", "logical_xor"), op("logical_not", TRUTH), dtypes=()),
    family(
        "bits",
        *_each((NATURAL, NATURAL), "bitwise_and", "bitwise_or", "bitwise_xor"),
        *_each((NATURAL,), "bitwise_not", "bitwise_invert"),
        *_each((NATURAL, SHIFTS), "bitwise_left_shift", "left_shift", "bitwise_right_shift", "right_shift"),
        dtypes=(),
    ),
    family(
        "special numbers", *_each((SPECIAL,), "isfinite", "isinf", "isnan", "isneginf", "isposinf", "nan_to_num"), op("nextafter", VECTOR, VECTOR)
    ),
    family(
        "limits and choices",
        op("clip", WIDE, x_min=-2.0, x_max=3.0),
        op("where", TRUTH, VECTOR, VECTOR),
        op("clip", WHOLE, title="int32", x_min=-2, x_max=3),
        ("select", lambda k, c, a, b: k.ops.select([c], [a], b), (TRUTH, VECTOR, VECTOR)),
        dtypes=(),
    ),
    family(
        "casts",
        *(op("cast", VECTOR, title=f"to {dtype}", dtype=dtype) for dtype in ("float16", "float64", "int32", "bool", "bfloat16")),
        *(op("cast", NATURAL, title=f"int32 to {dtype}", dtype=dtype) for dtype in ("float32", "int64", "uint8")),
        op("saturate_cast", Given((8,), draw="pixels"), dtype="uint8"),
        ("view", lambda k, x: k.ops.view(x, "int32"), (VECTOR,)),
        dtypes=(),
    ),
    family(
        "activations of keras.ops",
        *_each(
            (VECTOR,),
            "celu",
            "elu",
            "gelu",
            "hard_shrink",
            "hard_sigmoid",
            "hard_silu",
            "hard_swish",
            "hard_tanh",
            "leaky_relu",
            "log_sigmoid",
            "log_softmax",
            "relu",
            "relu6",
            "selu",
            "sigmoid",
            "silu",
            "soft_shrink",
            "softmax",
            "softplus",
            "softsign",
            "sparse_plus",
            "sparse_sigmoid",
            "sparsemax",
            "squareplus",
            "swish",
            "tanh_shrink",
            "glu",
        ),
        op("threshold", VECTOR, threshold=0.5, default_value=0.0),
    ),
    family(
        "normalising",
        op("normalize", MATRIX, axis=-1),
        op("rms_normalization", MATRIX),
        op("layer_normalization", MATRIX),
        ("batch_normalization", lambda k, x: k.ops.batch_normalization(x, k.ops.full((5,), 0.1), k.ops.full((5,), 1.5), -1), (MATRIX,)),
        ("moments", lambda k, x: list(k.ops.moments(x, axes=[-1])), (MATRIX,)),
    ),
)
