"""Faults that users met, by kind, and the test that holds each.

A: wrong numbers. B: memory that is not what was promised. C: an end where the plain framework
trains. D: silence, and words that mislead.
"""
from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

HELD = {
    "A1 buffers that a step reads and writes": (
        "torch/test_buffers.py::test_eager_plans_read_buffers_before_they_are_written",
        "torch/test_buffers.py::test_code_of_inductor_reads_buffers_before_they_are_written",
        "torch/test_random_buffers.py::test_random_buffers_with_eager_plans",
        "torch/test_random_buffers.py::test_buffers_with_code_of_inductor",
        "torch/test_buffers.py::test_verify_finds_that_code_reads_what_it_has_written",
        "torch/test_buffers.py::test_verify_says_no_where_an_eager_plan_reads_what_it_has_written"),
    "A2 verify goes back from all outputs": (
        "torch/test_buffers.py::test_verify_goes_back_from_all_outputs",
        "torch/test_buffers.py::test_verify_sees_gradients_that_a_plain_sum_would_hide"),
    "A3 blocks that ask for the mode": (
        "api/test_gluon_calls.py::"
        "test_a_block_that_asks_for_the_mode_trains_as_after_a_first_call_in_training",
        "api/test_gluon_calls.py::test_verify_finds_a_block_that_was_traced_in_another_mode",
        "fuzz/test_random_networks.py::test_a_few"),
    "A4 HiGHS with other threads in the process": (
        "solve/test_highs_runs.py::"
        "test_a_users_number_of_threads_changes_no_plan_nor_a_plan_the_users_runs",
        "solve/test_highs_runs.py::test_a_plan_says_where_highs_failed"),
    "B1 batches of other sizes": (
        "torch/test_sizes.py::test_batches_of_other_sizes_keep_the_budget_or_are_refused",
        "torch/test_sizes.py::test_the_last_batch_of_a_loader_trains",
        "torch/test_sizes.py::test_a_share_is_of_the_first_step",
        "torch/test_sizes.py::"
        "test_a_plan_is_followed_at_other_sizes_and_planned_again_above_its_budget"),
    "B2 the user's own checkpoints": (
        "torch/test_checkpoints.py::"
        "test_eager_mode_without_a_plan_is_the_module_as_it_is_written",
        "torch/test_checkpoints.py::test_inductor_without_a_plan_is_the_module_as_it_is_written",
        "torch/test_checkpoints.py::test_a_plan_may_undo_checkpoints_and_says_so"),
    "B3 eager mode on a CPU without a profile": (
        "torch/test_measured_bytes.py::test_the_allocator_stays_within_the_budget",),
    "B4 optimizers": (
        "torch/test_optimizer.py::test_totals_are_those_of_a_process",
        "torch/test_optimizer.py::test_a_budget_holds_at_both_moments",
        "torch/test_command_line.py::test_estimate_and_plan_count_the_optimizer"),
    "B5 gradients that exist": (
        "torch/test_training.py::test_gradients_that_exist_are_part_of_the_total",),
    "B6 the loss layer in 16 bits": (
        "torch/test_loss_layer.py::test_what_it_takes_while_it_runs_is_known",
        "torch/test_loss_layer.py::test_weights_of_16_bits",
        "torch/test_loss_layer.py::test_few_rows_take_no_more_time"),
    "B7 shards and buckets": (
        "torch/test_distributed.py::test_of_a_sharded_parameter_a_process_counts_its_shard",
        "torch/test_distributed.py::test_two_processes_train_as_without_a_plan"),
    "B8 backward ops that need no gradient": (
        "torch/test_buffers.py::test_what_backward_does_without_the_gradient_runs_in_backward",
        "torch/test_buffers.py::test_its_memory_is_counted_there"),
    "B9 variants that nobody measured": (
        "mx/test_unmeasured_variants.py::test_a_busy_machine_credits_no_variant",
        "mx/test_unmeasured_variants.py::test_the_words_of_a_plan_of_a_busy_machine"),
    "B10 copies of planned networks": (
        "mx/test_planned_copies.py::test_a_planned_process_takes_what_is_predicted",
        "mx/test_planned_copies.py::test_a_budget_holds_with_the_copy"),
    "C1 BatchNorm of few values": (
        "torch/test_buffers.py::test_statistics_of_a_small_batch_stay_with_the_first_run",),
    "C2 versions of PyTorch": (
        "torch/test_versions.py::test_importing_leaves_the_tables_of_pytorch_alone",
        "torch/test_versions.py::test_where_the_probe_fails_a_module_trains_without_a_plan",
        "torch/test_versions.py::test_the_extra_and_the_pages_name_the_versions"),
    "C3 values without a size or a storage": (
        "torch/test_sizes_by_values.py::test_rows_by_a_mask_count_with_the_most_that_they_can_be",
        "torch/test_sizes_by_values.py::test_sparse_gradients"),
    "C4 copies and pickles": (
        "torch/test_forms.py::test_a_copy_asks_for_the_same_and_plans_at_its_first_call",
        "torch/test_forms.py::test_copies_of_a_module_in_place_are_plain_modules"),
    "C5 nine blocks of one class": (
        "torch/test_sizes.py::test_more_sizes_and_more_modules_of_a_class_than_pytorch_compiles_"
        "by_itself",),
    "C6 names and signatures": (
        "torch/test_forms.py::test_names_types_and_signatures_are_the_modules",
        "torch/test_forms.py::test_checkpoints_with_and_without_the_names_of_torch_compile_are_"
        "loaded"),
    "C7 recurrent layers": (
        "torch/test_tracing.py::test_recurrent_layers_keep_a_budget",
        "torch/test_tracing.py::test_inductor_trains_an_lstm"),
    "C8 inputs of Gluon blocks": (
        "api/test_gluon_calls.py::test_inputs_may_be_nested_or_missing",
        "api/test_gluon_calls.py::test_inputs_may_have_names_where_the_call_has_any",
        "api/test_gluon_calls.py::test_what_symbols_do_not_have_is_said_with_its_place"),
    "C9 errors of PyTorch's compiler": (
        "torch/test_tracing.py::test_an_error_says_what_and_where",
        "torch/test_tracing.py::test_messages_cut_no_graph"),
    "C10 MXNET_BACKWARD_DO_MIRROR": (
        "api/test_stock_mirroring_left_on.py::test_a_plan_is_the_one_without_the_variable",),
    "C11 100 % under autocast": (
        "torch/test_inductor.py::test_a_share_of_all_is_never_refused",),
    "D gradients inside a function": (
        "torch/test_sizes.py::test_gradients_inside_a_function_are_counted",),
    "D plans and new plans are logged": (
        "torch/test_sizes.py::test_plans_and_new_ones_are_logged",),
    "D long calls say what they do": (
        "cli/test_progress.py::test_who_watches_sees_a_bar_of_a_long_call_unasked",
        "torch/test_calls.py::test_a_compilation_tells_its_progress"),
    "D a wrong budget": ("torch/test_sizes.py::test_a_wrong_budget_is_said_by_the_call",),
    "D a plan by the path of its file": (
        "torch/test_forms.py::test_a_plan_is_taken_from_its_file",),
    "D estimates print as estimates": (
        "torch/test_calls.py::test_an_estimate_prints_what_the_step_takes_by_category",),
    "D shapes in place of tensors": (
        "torch/test_calls.py::test_shapes_in_place_of_tensors_are_told_apart",),
    "D measuring a module that is not compiled": (
        "torch/test_calls.py::test_a_class_is_refused_and_stays_as_it_is",),
    "D eval mode": ("torch/test_calls.py::test_a_module_in_eval_mode_is_planned_with_a_note",),
    "D a module given to MXNet's calls": (
        "torch/test_calls.py::test_calls_of_mxnet_point_to_those_of_pytorch",),
    "D doctor": ("cli/test_doctor.py::test_torch_is_told_by_its_version",
                 "cli/test_doctor.py::test_without_mxnet_the_core_is_well"),
    "D the core is missing in a clone": (
        "util/test_native_libraries.py::test_a_source_tree_names_what_builds_the_missing_library",),
    "D auto on small graphs": ("solve/test_programs_first.py::test_a_proof_takes_little_work",),
    "D text graphs count from 0": (
        "graph/test_imported.py::test_errors_say_that_nodes_count_from_0",),
    "D budgets that are rounded": (
        "graph/test_imported.py::test_a_refusal_says_what_was_rounded",),
}


@pytest.mark.parametrize("fault", sorted(HELD))
def test_a_test_holds_each_fault(fault):
    for held in HELD[fault]:
        file, _, name = held.partition("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, held
