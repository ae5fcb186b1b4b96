"""A run fixes its views, its sample and its unit of distances once; a site refuses others, also after a restart."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedclust.core.question_types import AgreedValuesQuestion, UnitlessQuestion, ViewedQuestion
from fedclust.core.site_interface import View
from fedclust.core.study_terms import StudyTerms
from fedclust.questions.standardisation import scale_view
from fedclust.site.run_agreements import MAX_STUDY_VARIANTS, RunAgreements, views_of

RAW = View(np.array([3, 5], np.int32))
TERMS = StudyTerms("k-means", "rows", ("north", "south", "west"), 2, scale="standardise", max_clusters=3)
SCALED = scale_view(RAW, np.array([1.0, -2.0]), np.array([2.0, 0.5]))


@dataclass(frozen=True)
class Viewed(ViewedQuestion):
    view: View


@dataclass(frozen=True)
class Unitless(UnitlessQuestion):
    view: View


@dataclass(frozen=True)
class Sampled(AgreedValuesQuestion):
    share: int

    def agreed_values(self):
        return {"share": self.share}


def fixed(*questions, terms=TERMS, run="1-study", folder=None):
    agreements = RunAgreements(folder)
    for ask in questions:
        assert agreements.allows(terms, run, ask)
        agreements.remember(terms, run, ask)
    return agreements


def test_the_first_bounds_of_a_run_are_its_only_ones():
    agreements = fixed(Viewed(RAW))
    assert agreements.allows(TERMS, "1-study", Viewed(RAW))
    assert not agreements.allows(TERMS, "1-study", Viewed(View(RAW.exponents + 1)))
    assert agreements.allows(TERMS, "2-study", Viewed(View(RAW.exponents + 1)))


def test_a_restarted_site_remembers(tmp_path):
    fixed(Viewed(RAW), Viewed(SCALED), folder=tmp_path)
    again = RunAgreements(tmp_path)
    assert again.allows(TERMS, "1-study", Viewed(SCALED))
    assert not again.allows(TERMS, "1-study", Viewed(View(RAW.exponents + 1)))


def test_bounds_of_scaled_columns_follow_from_those_of_raw_ones():
    agreements = fixed(Viewed(RAW))
    assert agreements.allows(TERMS, "1-study", Viewed(SCALED))
    for change in (-1, 9):
        other = replace(SCALED, exponents=SCALED.exponents + np.int32(change))
        assert not agreements.allows(TERMS, "1-study", Viewed(other))


def test_there_is_one_scale_in_a_run_and_none_in_a_study_without_scale():
    agreements = fixed(Viewed(RAW), Viewed(SCALED))
    other = scale_view(RAW, np.array([1.0, -2.0]), np.array([2.0, 0.25]))
    assert not agreements.allows(TERMS, "1-study", Viewed(other))
    plain = replace(TERMS, scale="none")
    assert not fixed(Viewed(RAW), terms=plain).allows(plain, "1-study", Viewed(SCALED))


@pytest.mark.parametrize("spread", [[2.0, 0.0], [2.0, -1.0], [2.0, np.inf], [2.0]])
def test_a_spread_must_be_positive_and_finite_for_each_column(spread):
    view = View(RAW.exponents, np.zeros(2), np.array(spread))
    with np.errstate(all="ignore"):
        assert not fixed(Viewed(RAW)).allows(TERMS, "1-study", Viewed(view))


def test_an_origin_lies_near_the_rows():
    """Rows less a very distant origin are rounded: the origin would be a threshold."""
    view = scale_view(RAW, np.array([2.0**60, 0.0]), np.ones(2))
    assert not fixed(Viewed(RAW)).allows(TERMS, "1-study", Viewed(view))


def test_declared_bounds_are_the_widest():
    terms = replace(TERMS, low=np.array([-8.0, -32.0]), high=np.array([8.0, 32.0]))
    assert RunAgreements().allows(terms, "1-study", Viewed(RAW))
    assert not RunAgreements().allows(terms, "1-study", Viewed(View(RAW.exponents + 1)))


def test_a_minmax_scale_is_that_of_the_declared_bounds():
    terms = replace(TERMS, scale="minmax", low=np.array([-8.0, -32.0]), high=np.array([8.0, 32.0]))
    view = scale_view(RAW, terms.low, terms.high - terms.low)
    assert RunAgreements().allows(terms, "1-study", Viewed(view))
    assert not RunAgreements().allows(terms, "1-study", Viewed(scale_view(RAW, terms.low, terms.high)))


def test_a_question_without_sums_fixes_no_bounds():
    view = replace(SCALED, exponents=np.full(2, 127, np.int32))
    assert RunAgreements().allows(TERMS, "1-study", Unitless(view))
    assert not fixed(Unitless(view)).allows(TERMS, "1-study", Unitless(replace(view, spread=np.ones(2))))


def test_a_run_reads_one_sample():
    agreements = fixed(Sampled(1 << 31))
    assert agreements.allows(TERMS, "1-study", Sampled(1 << 31))
    assert not agreements.allows(TERMS, "1-study", Sampled(1 << 30))


def test_the_runs_of_a_study_fix_few_scales_together():
    agreements = RunAgreements()
    for number in range(MAX_STUDY_VARIANTS + 1):
        run, view = f"{number}-study", scale_view(RAW, np.array([float(number), 0.0]), np.ones(2))
        agreements.remember(TERMS, run, Viewed(RAW))
        assert agreements.allows(TERMS, run, Viewed(view)) == (number < MAX_STUDY_VARIANTS)
        agreements.remember(TERMS, run, Viewed(view))
    assert agreements.allows(TERMS, "1-another", Viewed(RAW))


def test_views_are_found_wherever_they_are():
    assert list(views_of(({"a": Viewed(RAW)}, (SCALED,)))) == [RAW, SCALED]
