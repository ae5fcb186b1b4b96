"""`fedclust site plan` and `fedclust site key`: show what a study would send from this site, and sign an approval."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedclust.cli.plan_text import format_plan, plan_document
from fedclust.core.errors import DataError, RuleRefusal, StudyError

if TYPE_CHECKING:
    from fedclust.app.site_plan import SitePlan
    from fedclust.site.approval import ApprovalTerms, Signatures
    from fedclust.site.site_file import SiteFile

APPROVAL_DAYS = 90  # how long an approval lasts by default


def add_plan_verb(acts: Any) -> None:
    plan = acts.add_parser("plan", help="see what a study would send from this site", description=act_plan.__doc__)
    plan.add_argument("study", type=Path, metavar="STUDY", help="a study.toml")
    plan.add_argument(
        "--data", type=Path, metavar="FILE", help="this site's data file (default: the source named in the --site file)"
    )
    plan.add_argument("--site", type=Path, metavar="FILE", help="this site's site.toml")
    plan.add_argument(
        "--name",
        metavar="SITE",
        help="this site's name in the study (default: the name in the --site file, else the study's first site)",
    )
    plan.add_argument("--policy", metavar="NAME", help="the policy to assume without --site (default: standard)")
    plan.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    plan.add_argument(
        "--approve",
        type=Path,
        metavar="FILE",
        help="sign an approval of this plan, or add a signature to it; needs --site",
    )
    plan.add_argument(
        "--key", type=Path, metavar="FILE", help="the data steward's private key, which signs the approval"
    )
    plan.add_argument(
        "--expires", metavar="DATE", help=f"the approval's last day (default: {APPROVAL_DAYS} days from today)"
    )
    plan.set_defaults(act=act_plan)
    key = acts.add_parser("key", help="make a signing key", description=act_key.__doc__)
    key.add_argument(
        "out", type=Path, metavar="FILE", help="the file for the private key; the public key goes to FILE.pub"
    )
    key.set_defaults(act=act_key)


def act_key(chosen: argparse.Namespace) -> int:
    """Make a signing key for a data steward or for a site. Keep the private key secret, and share the public key."""
    from fedclust.site.site_file import make_key

    print(f"private: {chosen.out} (keep it secret)\npublic:  {make_key(chosen.out)} (share it)")
    return 0


def act_plan(chosen: argparse.Namespace) -> int:
    """Say whether this site would take part in a study, who would learn what, and what to know before signing.

    Nothing is sent. The exit code is 0 if the site would answer everything, and 3 if not.
    """
    from fedclust.app.run_folder import study_origin
    from fedclust.app.site_plan import make_plan
    from fedclust.app.study import read_study
    from fedclust.site.policy import find_policy
    from fedclust.site.site_file import read_site_file

    if chosen.site and chosen.policy:
        raise StudyError(
            "--site and --policy both set the rules; leave --policy out, because the site's own file decides"
        )
    if chosen.approve and not (chosen.site and chosen.key):
        raise StudyError(
            "--approve needs --site FILE (this site's own file) and --key FILE (the private key that signs the "
            "approval)"
        )
    site = read_site_file(chosen.site) if chosen.site else None
    study = read_study(chosen.study, folder=study_origin(chosen.study), served=True)
    policy = site.policy if site else find_policy(chosen.policy or "standard")
    source = chosen.data or (site.rehearsal_source if site else None)
    if source is None:
        raise StudyError(
            "this site's rows are missing; give a data file with --data, or this site's site.toml with --site"
        )
    name = chosen.name or (site.name if site else study.sites[0].name)
    try:
        found = make_plan(study, name, source, policy, site.state if site else None)
    except DataError as error:
        text = str(error)
        if "at any site" not in text:
            raise
        raise DataError(
            f"the study cannot be rehearsed on the rows of site '{name}' alone ({text.partition(';')[0]}); rehearse "
            "all sites together with: fedclust rehearse"
        ) from None
    print(json.dumps(plan_document(found)) if chosen.json else format_plan(found))
    if chosen.approve and site:
        _write_approval(found, site, chosen)
    return 0 if found.is_allowed else 3


def _write_approval(found: SitePlan, site: SiteFile, chosen: argparse.Namespace) -> None:
    """Sign the plan, or add a signature to that of another steward."""
    from fedclust.core.atomic_files import write_file
    from fedclust.site.approval import sign_terms
    from fedclust.site.site_file import read_private_key

    if found.refused_questions or found.refused_columns:
        raise StudyError("this site's own rules refuse part of the study, so there is nothing to approve")
    if not found.is_affordable:
        raise StudyError("this site's privacy budget is too small for the study, so there is nothing to approve")
    steward = read_private_key(chosen.key)
    if site.stewards and steward.public not in site.steward_keys():
        raise StudyError(f"{chosen.key} is not the key of a steward that the site file names; use a steward's key")
    terms = _approval_terms(found, site, _last_day(chosen))
    terms, signed = _join_earlier_approval(terms, site, steward.public, chosen)
    write_file(chosen.approve, sign_terms(terms, steward, signed), one_writer=False)
    if chosen.json:
        return
    missing = found.policy.signatures - len(signed) - 1
    if missing > 0:
        print(
            f"\nSigned: {chosen.approve} has {len(signed) + 1} of {found.policy.signatures} signatures. The site "
            "answers once another steward has signed the same file with this command."
        )
        return
    print(
        f"\nApproved until {terms.expires}: {chosen.approve}. Any change to the study, policy, roster or version of "
        "fedclust invalidates it."
    )


def _last_day(chosen: argparse.Namespace) -> date:
    try:
        return (
            date.fromisoformat(chosen.expires)
            if chosen.expires
            else datetime.now(UTC).date() + timedelta(APPROVAL_DAYS)
        )
    except ValueError:
        raise StudyError(f"--expires is '{chosen.expires}'; give a date such as 2030-12-31") from None


def _approval_terms(found: SitePlan, site: SiteFile, last: date) -> ApprovalTerms:
    from fedclust import __version__
    from fedclust.site.approval import ApprovalTerms, roster_digest

    return ApprovalTerms(
        found.study.name,
        site.name,
        found.digest,
        found.policy.digest,
        roster_digest(site.roster),
        __version__,
        last.isoformat(),
        found.max_answers,
        found.study.aggregation.mode,
        site.noise.digest if site.noise else "",
    )


def _join_earlier_approval(
    terms: ApprovalTerms, site: SiteFile, steward: bytes, chosen: argparse.Namespace
) -> tuple[ApprovalTerms, Signatures]:
    """Return the terms to sign and the signatures that other stewards gave to the same terms.

    An approval of anything else, or one that has expired, is replaced.
    """
    from fedclust.site.approval import read_signed_terms

    if site.policy.signatures == 1 or not chosen.approve.exists():
        return terms, {}
    try:
        earlier, signed = read_signed_terms(chosen.approve, site.steward_keys())
    except RuleRefusal:
        raise StudyError(
            f"{chosen.approve} was altered, or signed by somebody who is not a steward of this site, so no signature "
            "is added to it; delete the file and let every steward sign again"
        ) from None
    same_expiry = replace(terms, expires=earlier.expires)
    if earlier != same_expiry or date.fromisoformat(earlier.expires) < datetime.now(UTC).date():
        return terms, {}
    if chosen.expires and terms.expires != earlier.expires:
        raise StudyError(
            f"{chosen.approve} is signed until {earlier.expires}; leave --expires out to add a signature to it, or "
            "delete the file to begin again"
        )
    if set(signed) == {steward}:
        raise StudyError(f"this steward has signed {chosen.approve} already; a different steward must sign it too")
    return earlier, {key: own for key, own in signed.items() if key != steward}
