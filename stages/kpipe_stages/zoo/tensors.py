"""Ops that move numbers about: shapes, slices, joins, gathers; and images."""

from __future__ import annotations

from kpipe_stages.zoo.case import FREE_IMAGE, IDS, IMAGE, MATRIX, NATURAL, SQUARE, STEPS, VECTOR, Given, Unit, family, op

SHARES = Given((8, 8, 3), draw="share")
PATCHES = Given((8, 8, 3))
CUBE = Given((8, 8, 8, 1))
PICTURE = Given((8, 8, 2))
TURN = Given((8,), draw="turn")
CORNERS = Given((4, 2), draw="corners")
DEPTH = Given((4, 4, 8))

UNITS: tuple[Unit, ...] = (
    family(
        "shapes",
        op("reshape", STEPS, newshape=(-1, 24)),
        op("expand_dims", VECTOR, axis=1),
        op("squeeze", Given((1, 5)), axis=1),
        op("transpose", STEPS, axes=(0, 2, 1)),
        op("swapaxes", STEPS, axis1=1, axis2=2),
        op("moveaxis", STEPS, source=1, destination=2),
        ("ravel", lambda k, x: k.ops.expand_dims(k.ops.ravel(x), 0), (MATRIX,)),
        op("broadcast_to", Given((1, 5)), shape=(3, 4, 5), title="fixed batch"),
        op("copy", VECTOR),
        op("rearrange", STEPS, pattern="b t c -> b (t c)"),
    ),
    family(
        "repeats",
        op("repeat", STEPS, repeats=2, axis=1),
        op("tile", STEPS, repeats=(1, 2, 3)),
        op("pad", STEPS, pad_width=((0, 0), (1, 2), (0, 1))),
        op("pad", STEPS, title="reflect", pad_width=((0, 0), (1, 2), (0, 1)), mode="reflect"),
        op("pad", STEPS, title="symmetric", pad_width=((0, 0), (1, 2), (0, 1)), mode="symmetric"),
        op("flip", STEPS, axis=1),
        op("roll", STEPS, shift=2, axis=1),
        op("rot90", STEPS, axes=(1, 2)),
        op("fliplr", STEPS),
        ("flipud", lambda k, x: k.ops.expand_dims(k.ops.flipud(k.ops.transpose(x, (1, 0, 2))), 0), (Given((6, 4)),)),
    ),
    family(
        "joins",
        ("concatenate", lambda k, a, b: k.ops.concatenate([a, b], axis=-1), (MATRIX, MATRIX)),
        ("stack", lambda k, a, b: k.ops.stack([a, b], axis=1), (MATRIX, MATRIX)),
        ("append", lambda k, a, b: k.ops.append(a, b, axis=-1), (MATRIX, MATRIX)),
        ("hstack", lambda k, a, b: k.ops.hstack([a, b]), (MATRIX, MATRIX)),
        ("vstack", lambda k, a, b: k.ops.vstack([a, b]), (MATRIX, MATRIX)),
        ("dstack", lambda k, a, b: k.ops.dstack([a, b]), (MATRIX, MATRIX)),
    ),
    family(
        "splits",
        ("split", lambda k, x: list(k.ops.split(x, 2, axis=1)), (STEPS,)),
        ("unstack", lambda k, x: list(k.ops.unstack(x, axis=2)), (STEPS,)),
        ("array_split", lambda k, x: list(k.ops.array_split(x, 4, axis=1)), (STEPS,)),
        ("hsplit", lambda k, x: list(k.ops.hsplit(x, 2)), (STEPS,)),
        ("dsplit", lambda k, x: list(k.ops.dsplit(x, 2)), (STEPS,)),
        ("vsplit", lambda k, x: list(k.ops.vsplit(x[0], 2)), (STEPS,)),
    ),
    family(
        "slices and gathers",
        ("get_item", lambda k, x: k.ops.get_item(x, (slice(None), slice(1, 4), 0)), (STEPS,)),
        op("take", STEPS, indices=[2, 0, 1], axis=1),
        ("take, by an input", lambda k, x, i: k.ops.take(x[0], i, axis=0), (Given((10, 4)), IDS)),
        ("take_along_axis", lambda k, x, i: k.ops.take_along_axis(x, i, axis=1), (Given((10,)), IDS)),
        ("slice", lambda k, x: k.ops.slice(x, (0, 1, 0), (1, 3, 2)), (STEPS,)),
        ("slice_update", lambda k, x: k.ops.slice_update(x, (0, 0), k.ops.ones((1, 2))), (VECTOR,)),
        (
            "scatter",
            lambda k, x: k.ops.expand_dims(k.ops.scatter(k.ops.convert_to_tensor([[0], [2], [1], [0]]), k.ops.transpose(x[:1]), (5, 1)), 0),
            (Given((4,)),),
        ),
        (
            "scatter_update",
            lambda k, x: k.ops.scatter_update(x, k.ops.convert_to_tensor([[0, 1], [0, 3]]), k.ops.convert_to_tensor([1.0, 2.0])),
            (VECTOR,),
        ),
        ("unravel_index", lambda k, x: list(k.ops.unravel_index(x, (2, 5))), (NATURAL,)),
        dtypes=(),
    ),
    family(
        "triangles and diagonals",
        op("tril", SQUARE),
        op("triu", SQUARE, k=1),
        op("diagonal", SQUARE, axis1=1, axis2=2),
        op("trace", SQUARE, axis1=1, axis2=2),
        ("diag", lambda k, x: k.ops.expand_dims(k.ops.diag(k.ops.reshape(x, (-1,))), 0), (Given((5,)),)),
        ("diagflat", lambda k, x: k.ops.expand_dims(k.ops.diagflat(x), 0), (Given((5,)),)),
        ("vander", lambda k, x: k.ops.expand_dims(k.ops.vander(k.ops.reshape(x, (-1,)), 3), 0), (Given((5,)),)),
    ),
    family("like another", op("ones_like", MATRIX), op("zeros_like", MATRIX), op("full_like", MATRIX, fill_value=2.0)),
    family("encodings", op("one_hot", NATURAL, num_classes=10), op("multi_hot", NATURAL, num_classes=10), dtypes=("int64",)),
    family(
        "convolutions and pools",
        ("conv", lambda k, x: k.ops.conv(x, k.ops.ones((3, 3, 3, 2)) * 0.1), (IMAGE,)),
        ("conv_transpose", lambda k, x: k.ops.conv_transpose(x, k.ops.ones((3, 3, 2, 3)) * 0.1, strides=2, data_format="channels_last"), (IMAGE,)),
        ("depthwise_conv", lambda k, x: k.ops.depthwise_conv(x, k.ops.ones((3, 3, 3, 1)) * 0.1), (IMAGE,)),
        ("separable_conv", lambda k, x: k.ops.separable_conv(x, k.ops.ones((3, 3, 3, 1)) * 0.1, k.ops.ones((1, 1, 3, 2))), (IMAGE,)),
        op("max_pool", IMAGE, pool_size=2),
        op("average_pool", IMAGE, pool_size=2),
        op("adaptive_average_pool", IMAGE, output_size=3),
        op("adaptive_average_pool", IMAGE, title="two sizes", output_size=(3, 3)),
        op("adaptive_max_pool", IMAGE, output_size=3),
        op("adaptive_max_pool", IMAGE, title="two sizes", output_size=(3, 3)),
        op("depth_to_space", DEPTH, block_size=2),
        op("space_to_depth", DEPTH, block_size=2),
        op("unfold", Given((3, 8, 8)), kernel_size=2, stride=2),
        op("fold", Given((12, 16)), output_size=(8, 8), kernel_size=2, stride=2),
        dtypes=(),
    ),
    family(
        "images",
        op("image.resize", IMAGE, size=(5, 6)),
        op("image.rgb_to_grayscale", SHARES),
        op("image.rgb_to_hsv", SHARES),
        op("image.hsv_to_rgb", SHARES),
        op("image.crop_images", IMAGE, top_cropping=1, left_cropping=2, target_height=4, target_width=5),
        op("image.pad_images", IMAGE, top_padding=1, left_padding=2, target_height=12, target_width=11),
        op("image.extract_patches", IMAGE, size=(2, 2)),
        op("image.extract_patches_3d", CUBE, size=(2, 2, 2)),
        op("image.gaussian_blur", IMAGE),
        op("image.sobel_edges", IMAGE),
        ("image.affine_transform", lambda k, x, t: k.ops.image.affine_transform(x, t), (IMAGE, TURN)),
        ("image.perspective_transform", lambda k, x, a, b: k.ops.image.perspective_transform(x, a, b), (IMAGE, CORNERS, CORNERS)),
        (
            "image.map_coordinates",
            lambda k, x: k.ops.expand_dims(k.ops.image.map_coordinates(x[0], k.ops.convert_to_tensor([[0.5, 1.5], [1.2, 2.2]]), order=1), 0),
            (Given((6, 5)),),
        ),
        (
            "image.scale_and_translate",
            lambda k, x: k.ops.image.scale_and_translate(
                x,
                (1, 5, 6, 3),
                scale=k.ops.convert_to_tensor([0.6, 0.7]),
                translation=k.ops.convert_to_tensor([0.1, 0.2]),
                spatial_dims=(1, 2),
                method="linear",
            ),
            (Given((8, 8, 3)),),
        ),
        ("image.ssim", lambda k, a, b: k.ops.image.ssim(a, b), (Given((12, 12, 3), draw="share"), Given((12, 12, 3), draw="share"))),
        op("image.resize", FREE_IMAGE, title="free size", size=(5, 6)),
        ("psnr", lambda k, a, b: k.ops.expand_dims(k.ops.psnr(a, b, 1.0), 0), (SHARES, SHARES)),
        names=("image.elastic_transform",),
        dtypes=(),
    ),
)
