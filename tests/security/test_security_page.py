"""docs/security.md says nothing that no test holds: a line has a number, a number has tests."""

import ast
import re

import pytest

from tests.helpers.project import ROOT

PAGE = ROOT / "docs" / "security.md"

UNTRUSTED = "security/test_untrusted.py"
TRUSTED = "security/test_trusted.py"
LINKS = "security/test_links.py"
PAGES = "security/test_pages.py"
SECRETS = "repo/test_no_secrets.py"
FOLDER = "security/test_working_folder.py"

HELD_BY = {
    "S1": [f"{TRUSTED}::test_show_and_ls_only_read"],
    "S2": [f"{UNTRUSTED}::test_a_target_that_is_not_torchs_own"],
    "S3": [f"{UNTRUSTED}::test_an_option_of_ctk_that_is_not_harmless"],
    "S4": [
        f"{UNTRUSTED}::test_an_option_of_inductor_that_is_not_harmless",
        f"{UNTRUSTED}::test_an_option_of_another_target",
    ],
    "S5": [
        f"{UNTRUSTED}::test_a_function_that_is_not_torchs",
        f"{UNTRUSTED}::test_a_module_that_is_listed",
    ],
    "S6": [f"{UNTRUSTED}::test_every_command_refuses_and_says_what_and_how_to_trust"],
    "S7": ["security/test_hostile_helpers.py::test_a_process_a_module_and_a_file_are_noticed"],
    "S8": [f"{TRUSTED}::test_show_lists_what_needs_trust"],
    "S9": [f"{TRUSTED}::test_what_the_user_says_needs_no_trust"],
    "S10": [f"{TRUSTED}::test_an_allowed_module_allows_its_functions_only"],
    "S11": [f"{UNTRUSTED}::test_every_operation_of_the_library_refuses_a_folder"],
    "S12": [
        f"{LINKS}::test_a_file_that_is_no_plain_file",
        f"{LINKS}::test_a_folder_of_sources_that_is_a_link",
    ],
    "S13": [
        f"{LINKS}::test_a_file_that_is_read_is_listed",
        f"{LINKS}::test_values_that_are_not_listed_are_not_read",
        f"{LINKS}::test_saving_a_loaded_case_again_copies_listed_files_only",
    ],
    "S14": [
        f"{LINKS}::test_show_follows_no_link_in_a_dump",
        f"{LINKS}::test_show_follows_no_linked_folder_in_a_dump",
    ],
    "S17": [f"{PAGES}::test_a_report_follows_no_link"],
    "S60": [
        f"{PAGES}::test_hostile_texts_make_no_markup",
        f"{PAGES}::test_hostile_texts_are_shown_as_texts",
        "browser/test_hostile.py::test_a_hostile_page_is_inert",
    ],
    "S61": [
        f"{PAGES}::test_the_policy_allows_the_code_of_the_page_and_nothing_else",
        "browser/test_hostile.py::test_a_strangers_markup_written_into_the_page_would_not_run",
    ],
    "S62": [f"{PAGES}::test_a_report_replaces_only_reports"],
    "S15": [
        "security/test_graph_texts.py::test_the_message_of_an_assertion_reaches_no_shell_through_inductor",
        "security/test_graph_texts.py::test_a_message_cannot_end_the_string_it_is_pasted_into",
        "security/test_graph_texts.py::test_an_operator_that_needs_trust_needs_it_behind_another_one_too",
    ],
    "S16": [
        "security/test_endless.py::test_a_case_that_never_ends_is_ended",
        "security/test_endless.py::test_a_case_that_fills_the_memory_is_ended",
    ],
    "S24": [
        f"{LINKS}::test_a_file_that_is_no_plain_file",
        f"{LINKS}::test_a_source_that_is_not_listed",
    ],
    "S40": [f"{TRUSTED}::test_a_harmless_case_is_judged_and_writes_below_out_only"],
    "S41": [f"{TRUSTED}::test_an_emitted_repro_carries_what_its_case_runs"],
    "S42": [f"{FOLDER}::test_the_clean_run_of_a_repro_imports_nothing_from_its_folder"],
    "S43": [
        "unit/case/formats/test_files.py::test_files_are_private_whatever_the_umask",
        "unit/case/formats/test_files.py::test_sharing_lets_the_umask_decide",
        f"{SECRETS}::test_no_file_holds_a_secret_of_the_environment",
    ],
    "S44": [f"{SECRETS}::test_a_backend_that_raises_with_secrets"],
    "S45": [
        "unit/compile_log/test_trace.py::test_secrets_are_removed",
        f"{SECRETS}::test_no_file_holds_a_secret_of_the_environment",
        f"{SECRETS}::test_a_backend_that_raises_with_secrets",
    ],
    "S46": [
        "unit/case/usercode/test_slicing.py::test_one_file",
        "unit/case/usercode/test_slicing.py::test_neighbours",
        "unit/case/test_sources.py::test_a_case_carries_what_its_pass_needs_and_no_more",
    ],
    "S47": [
        "unit/case/formats/test_files.py::test_a_planted_link_is_not_written_through",
        "unit/case/formats/test_files.py::test_a_planted_partial_is_neither_followed_nor_overwritten",
        "unit/case/test_sources.py::test_copies_are_not_written_through_a_link",
    ],
    "S48": [
        "unit/cache_folder/test_folder.py::test_it_is_made_private",
        "unit/cache_folder/test_folder.py::test_one_that_others_may_write_to_is_not_used",
        "unit/cache_folder/test_folder.py::test_one_of_somebody_else_is_not_used",
        "unit/artifacts/test_store.py::test_a_link_out_of_the_cache_is_not_followed",
    ],
    "S49": [
        "unit/artifacts/test_store.py::test_nothing_wrong_is_loaded",
        "unit/artifacts/test_store_stress.py::test_a_thousand_mutated_entries_are_not_loaded",
        "unit/artifacts/test_container.py::test_no_flipped_bit_is_accepted",
        "unit/artifacts/test_container.py::test_no_other_length_is_accepted",
    ],
    "S52": [
        "unit/watch/test_late_calls.py::test_how_the_process_ends_decides_about_the_ring",
        "unit/watch/test_late_calls.py::test_older_calls_make_room_within_the_limit",
        "unit/watch/test_late_calls.py::test_contradictions_are_refused",
    ],
    "S50": [f"{TRUSTED}::test_a_harmless_case_is_judged_and_writes_below_out_only"],
    "S51": ["unit/case/trust/test_harmless.py::test_each_target_is_decided"],
    "S20": [f"{TRUSTED}::test_a_trusted_case_runs"],
    "S21": [f"{TRUSTED}::test_trust_is_for_one_command"],
    "S22": [f"{TRUSTED}::test_a_program_of_the_user_needs_no_trust"],
    "S25": [
        "unit/importers/test_exported.py::test_inputs_that_would_run_code",
        "unit/importers/test_torch_repro.py::test_a_storage_that_would_run_code_is_refused",
    ],
    "S23": [f"{TRUSTED}::test_the_printed_commands_work"],
    "S30": [f"{FOLDER}::test_no_command_imports_from_the_working_folder"],
    "S31": [f"{FOLDER}::test_children_import_nothing_from_the_working_folder"],
    "S32": [f"{FOLDER}::test_a_module_that_the_user_names_may_lie_there"],
    "S33": [f"{FOLDER}::test_beside_a_program_installed_modules_win"],
}


def numbers() -> list[str]:
    """The numbers of the page, in order."""
    return re.findall(r"^- \*\*(S\d+)\*\* ", PAGE.read_text(), re.MULTILINE)


def test_every_line_has_a_number_of_its_own_and_tests() -> None:
    assert sorted(numbers()) == sorted(HELD_BY)


def test_nothing_is_said_between_the_lines() -> None:
    _, _, body = PAGE.read_text().partition("\n## ")
    for line in f"## {body}".splitlines():
        assert line == "" or line.startswith(("## ", "- **S")), f"no number: {line}"


@pytest.mark.parametrize("number", HELD_BY)
def test_the_tests_of_a_line_exist(number: str) -> None:
    assert HELD_BY[number]
    for name in HELD_BY[number]:
        file, _, function = name.partition("::")
        tree = ast.parse((ROOT / "tests" / file).read_text())
        found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert function in found, name
