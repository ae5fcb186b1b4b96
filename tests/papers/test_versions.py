"""Versions: golden values of a method and its version change together, or somebody says that figures stay."""

import json
import re

import pytest

from papers import versions


def test_golden_values_are_those_of_the_recorded_versions():
    changed = versions.changed_methods()
    assert not changed, (
        f"golden values of {', '.join(changed)} changed. If published figures change with them, raise the "
        "version (python -m papers.versions --raise NAME) and compute the figures again; if not, use --carry-over NAME"
    )


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """Versions and golden values in files that a test may change."""
    for name in ("VERSIONS", "GOLDEN_VALUES"):
        own = tmp_path / getattr(versions, name).name
        own.write_text(getattr(versions, name).read_text("utf-8"), "utf-8")
        monkeypatch.setattr(versions, name, own)
    versions.method_versions.cache_clear()
    yield versions
    versions.method_versions.cache_clear()


def change_golden_value(versions, case):
    whole = json.loads(versions.GOLDEN_VALUES.read_text("utf-8"))
    whole["values"][case] = "0" * 32
    versions.GOLDEN_VALUES.write_text(json.dumps(whole), "utf-8")


def test_a_changed_golden_value_names_its_method_only(copy, capsys):
    change_golden_value(copy, "rows/mufc/default/plain/c")
    assert list(copy.changed_methods()) == ["mufc"]
    assert copy.main([]) == 1
    assert "mufc: golden values differ from those of version 1" in capsys.readouterr().out


@pytest.mark.parametrize(("word", "version"), [("--raise", 2), ("--carry-over", 1)])
def test_a_version_is_raised_or_carried_over(copy, word, version):
    change_golden_value(copy, "rows/mufc/default/plain/c")
    assert copy.main([word, "mufc"]) == 0
    copy.method_versions.cache_clear()
    assert copy.method_versions()["mufc"].version == version
    assert copy.changed_methods() == {}


def test_a_renamed_golden_case_changes_nothing(copy):
    text = copy.GOLDEN_VALUES.read_text("utf-8")
    copy.GOLDEN_VALUES.write_text(text.replace("rows/mufc/scaled/", "rows/mufc/zoomed/"), "utf-8")
    assert copy.changed_methods() == {}


def test_a_pattern_that_names_no_case_is_an_error(copy):
    copy.GOLDEN_VALUES.write_text(re.sub("rows/mufc/", "rows/other/", copy.GOLDEN_VALUES.read_text("utf-8")), "utf-8")
    with pytest.raises(LookupError, match="no golden case matches rows/mufc"):
        copy.changed_methods()


def test_a_method_that_has_no_version_is_named(copy, capsys):
    assert copy.main(["--raise", "no-such"]) == 2
    assert "has no method 'no-such'" in capsys.readouterr().err
