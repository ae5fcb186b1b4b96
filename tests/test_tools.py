"""Figures about the code itself stay within the limits that were set for them."""

from pathlib import Path

import pytest

from tools import code_numbers, wheel_contents

MAX_TOP_LEVEL_NAMES, MAX_LAYERS = 14, 11
MAX_ATTRIBUTE_PROBES = 1.0  # calls of getattr and hasattr per 1,000 lines


@pytest.fixture(scope="module")
def tree():
    return code_numbers.Tree(code_numbers.DEFAULT_TREE)


def test_the_package_has_few_top_level_names(tree):
    assert len(code_numbers.list_top_level_names(tree)) <= MAX_TOP_LEVEL_NAMES


def test_the_import_contract_has_few_layers(tree):
    assert 0 < len(code_numbers.find_layers(tree)) <= MAX_LAYERS


def test_attributes_are_part_of_types_and_not_probed_for(tree):
    probes = code_numbers.list_attribute_probes(tree)
    assert 1000 * len(probes) / tree.lines <= MAX_ATTRIBUTE_PROBES, "\n".join(probes)


def test_models_have_types(tree):
    assert code_numbers.list_untyped_models(tree) == []


def test_what_is_counted_is_found_in_a_small_package(tmp_path):
    package = tmp_path / "small"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "fit.py").write_text(
        "def describe(model: Any):\n    return getattr(model, 'name', hasattr(model, 'k'))\n"
    )
    tree = code_numbers.Tree(package)
    assert code_numbers.list_top_level_names(tree) == ["fit"]
    assert len(code_numbers.list_attribute_probes(tree)) == 2
    assert code_numbers.list_untyped_models(tree) == ["fit.py:1 model: Any"]


def test_no_module_of_the_package_is_for_development_only():
    source = Path(code_numbers.DEFAULT_TREE).parent
    modules = [path.relative_to(source) for path in source.rglob("*.py")]
    assert modules
    assert [path.as_posix() for path in modules if wheel_contents.find_kind(path)] == []
