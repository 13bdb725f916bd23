"""Every kind of case that users met has its own test and a sibling by other means: the list, and that nothing of it has gone."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CASES: dict[str, tuple[str, str]] = {
    "00_control_cnn": ("models", "plain"),
    "01_gru_reset_before": ("models", "recurrent"),
    "02_lstm_mask_zero": ("models", "recurrent"),
    "05_upsample_bilinear": ("models", "resize_nearest"),
    "10_mixed_float16": ("models", "mixed_bfloat16"),
    "13_text_vectorization": ("models", "integer_lookup"),
    "16_nan_pooling_relu": ("models", "nan_inside"),
    "18_multi_input_order": ("models", "plain"),
    "20_many_outputs_order": ("models", "plain"),
    "21_lambda_safe_mode": ("models", "nested_lambda"),
    "22_custom_layer_unregistered": ("models", "custom_function"),
    "23_uint8_input": ("models", "plain"),
    "24_openvino_bf16_default": ("models", "near_a_threshold"),
    "26_flex_ops": ("models", "antialiased"),
    "27_augmentation_layers": ("models", "plain"),
    "28_dynamic_hw": ("models", "free_size"),
    "29_empty_batch": ("inputs", "test_a_manifest_without_entries_is_a_wrong_command"),
    "36_ties": ("models", "stranger_names"),
    "37_odd_names": ("models", "stranger_names"),
    "40_mc_dropout": ("models", "forced_noise"),
    "43_passthrough_outputs": ("models", "plain"),
    "49_timedistributed_dynamic_time": ("models", "timedistributed_conv"),
    "56_wrong_inputs": ("inputs", "test_byte_order_and_memory_layout_are_settled_before_a_runtime_sees_them"),
    "57_gelu_default": ("models", "plain"),
    "61_normalization_layer": ("models", "plain"),
    "63_two_lstm_openvino_onnx": ("models", "test_a_masked_gru_that_openvino_cannot_read_from_onnx_is_no_silence"),
    "A01_truncated_zip": ("archives", "A01_web_page"),
    "A03_lambda_code": ("archives", "A03_marshalled_activation"),
    "A04_config_names_module": ("archives", "A04_standard_function"),
    "A06_zip_traversal": ("archives", "A06_symbolic_link"),
    "A07_zip_bomb_config": ("archives", "A07_many_assets"),
    "A09_h5_renamed": ("archives", "A09_pickle"),
    "A11_nan_weights": ("archives", "A11_infinite_bias"),
    "A12_duplicate_config": ("archives", "A12_names_that_differ_in_case"),
    "A16_h5_external_link": ("archives", "A16_external_storage"),
    "A20_deep_json": ("archives", "A20_deep_metadata"),
    "A22_png_bomb": ("inputs", "test_picture_bombs_are_refused_by_what_their_headers_say"),
}
"""Case to the file of its tests (``test_cases_<file>.py``) and its sibling: another model or archive, or the test that is about another means."""
BY_TEST = {"56_wrong_inputs": "test_arrays_that_do_not_fit_are_refused", "A22_png_bomb": "test_picture_bombs_fill_no_memory"}
"""Cases that are files made on the spot: the test that is about them."""


def written(kind: str) -> str:
    """A kind's tests and what they take their cases from."""
    builders = "build_archives.py" if kind == "archives" else "build_models.py"
    return (TESTS / f"test_cases_{kind}.py").read_text(encoding="utf-8") + (TESTS / "cases" / builders).read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_a_case_is_run_and_so_is_its_sibling(case: str) -> None:
    kind, sibling = CASES[case]
    text = written(kind)
    name = BY_TEST.get(case, case)
    assert f'"{name}"' in text or f"def {name}(" in text
    assert f'"{sibling}"' in text or f"def {sibling}(" in text
    assert sibling not in CASES
