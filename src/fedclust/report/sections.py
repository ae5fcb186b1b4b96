"""The main sections of the report; a section that is missing says why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedclust.core.counted_nouns import count_noun
from fedclust.report import bar_charts, line_charts
from fedclust.report.chart_axes import COLOR_COUNT, chip
from fedclust.report.markup import Markup, Node, table, tag
from fedclust.report.run_facts import FinishedRun
from fedclust.report.wording import (
    INDEX_MEANINGS,
    SHAPE_WORDS,
    clarity,
    column_title,
    format_by_deviation,
    format_bytes,
    format_number,
    format_share,
    format_signed,
    index_name,
    join_words,
    traits,
)

FULL_COLOR_DEVIATION = 2.0  # standard deviations at which a colour of the profiles is full


def section(name: str, title: str, *content: Node) -> Markup:
    return tag("section", tag("h2", title, id=f"{name}-head"), content, id=name, aria_labelledby=f"{name}-head")


def absence_note(found: Mapping[str, Any]) -> Markup | None:
    """Return the sentence for a part that is absent, or None if it is present."""
    return tag("p", found["absent"], class_="absent") if "absent" in found else None


def headline(run: FinishedRun) -> Markup:
    """Summarise the result in words."""
    found = run.analysis
    rows, sites, width = _count_rows(found), len(found["parties"]), len(found["columns"])
    where = f"{count_noun(rows, 'row')} at {count_noun(sites, 'site')}" if rows else count_noun(sites, "site")
    facts = {
        "clusters": f"{found['k']}",
        "rows": f"{rows:,}" if rows else "not known",
        "sites": f"{sites:,}",
        "columns": f"{width:,}",
        "rounds": f"{found['convergence']['rounds']:,}" if "rounds" in found["convergence"] else "not known",
        "left each site": format_bytes(_max_bytes_sent(found["left"]))
        if "sites" in found["left"]
        else "see its ledger",
    }
    tiles = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items()]
    return tag(
        "header",
        tag("p", "fedclust report", class_="kicker"),
        tag("h1", f"{run.name}: {count_noun(found['k'], 'cluster')} in {where}"),
        [tag("p", sentence, class_="lead" if at == 0 else None) for at, sentence in enumerate(_sentences(found))],
        tag("dl", tiles, class_="tiles"),
    )


def _count_rows(found: Mapping[str, Any]) -> int:
    """Return the number of rows of all sites, or 0 if it is not known."""
    sizes = found["sizes"]
    return int(sizes.get("total") or sum(own or 0 for own in sizes.get("rows", ())))


def _max_bytes_sent(left: Mapping[str, Any]) -> int:
    return max((own["bytes"] for own in left["sites"].values()), default=0)


def _sentences(found: Mapping[str, Any]) -> list[str]:
    names = [facts["name"] for facts in found["columns"]]
    over = join_words(names) if len(names) <= 6 else f"{len(names)} columns"
    how = found["title"]
    rows, z, whole = found["sizes"].get("rows"), found["profiles"].get("standardised"), _count_rows(found)
    lead = f"{how[:1].upper()}{how[1:]} over {over}."
    if rows and None not in rows and z and found["k"] > 1:
        order = sorted(range(found["k"]), key=lambda c: -rows[c])
        big, small = order[0], order[-1]
        lead = (
            f"The largest cluster, number {big}, has {format_share(rows[big], whole)} of the rows "
            f"({traits(found['columns'], z[big])}). The smallest, number {small}, has "
            f"{format_share(rows[small], whole)} "
            f"({traits(found['columns'], z[small])})."
        )
    same = "any other split of the columns" if found["split"] == "columns" else "the pooled rows"
    exact = (
        f"No rows were pooled, and this did not change the result: from the same initial centres, {same} "
        "would have given the same centres, to the last bit."
        if found["lossless"]
        else "The result is not exactly that of the pooled rows. The notes explain why."
    )
    if found["fuzziness"].get("coefficient"):
        lead = f"{lead} {clarity(float(found['fuzziness']['coefficient']), found['k'])}"
    chosen = found["selection"]
    given = f"The number of clusters, {found['k']}, was given in the study."
    many = chosen.get("why", chosen.get("absent")) if chosen else given
    return [lead, f"Found by {how} over {over}. {many} {exact}"]


def k_choice_section(run: FinishedRun) -> Markup:
    """Explain how the number of clusters was chosen."""
    found = run.analysis["selection"]
    if not found:
        why = f"The study asks for {count_noun(run.analysis['k'], 'cluster')}, so there was nothing to choose. "
        advice = [
            why,
            "To let fedclust choose the number, write ",
            tag("code", 'k = "2..8"'),
            " or ",
            tag("code", 'k = "auto"'),
            " in the study.",
        ]
        return section("choice", "How many clusters", tag("p", advice, class_="absent"))
    if (missing := absence_note(found)) is not None:
        return section("choice", "How many clusters", missing)
    summary = [tag("p", found["why"]), tag("p", INDEX_MEANINGS.get(found["name"], ""), class_="quiet")]
    if found["stability"] is not None:
        agree = f"{float(found['stability']):.2f}"
        summary.append(
            tag(
                "p",
                f"Agreement of fits from different initial centres: {agree} (adjusted Rand index; 1 means the same "
                "clusters each time).",
            )
        )
    summary += [tag("p", note) for note in found["notes"]]
    if not found["curve"]:
        return section("choice", "How many clusters", tag("div", summary))
    pair = tag("div", line_charts.draw_k_curve(found), tag("div", summary, _scores(found)), class_="pair")
    return section("choice", "How many clusters", pair)


def _scores(found: Mapping[str, Any]) -> Markup:
    by_index = found["criterion"] == "index"
    head = ["K", "value", "objective"] if by_index else ["K", "components", "evidence"]
    rows: list[list[Node]] = []
    for row in found["scores"]:
        mark = tag("strong", f"{row['k']} (chosen)") if row["chosen"] else str(row["k"])
        if by_index:
            rows.append([mark, format_number(float(row["value"])), format_number(float(row["objective"]))])
        else:
            rows.append([mark, SHAPE_WORDS[row["family"]], format_number(float(row["evidence"]))])
    inner = table(head, rows, caption="Every candidate that was examined", class_="numbers")
    return tag("details", tag("summary", f"All {len(rows)} candidates"), inner)


def clusters_section(run: FinishedRun) -> Markup:
    """Show the clusters: profiles, sizes, map."""
    found = run.analysis
    rows, spread = found["sizes"].get("rows"), absence_note(found["map"])
    sized = (
        bar_charts.draw_sizes(
            rows,
            _count_rows(found),
            found["sizes"].get("weights") if found["m"] else None,
            earlier=bool(found["sizes"].get("earlier")),
        )
        if rows
        else tag("p", "Sizes: ", found["sizes"].get("absent", "not known"), class_="absent")
    )
    mapped = line_charts.draw_map(found["map"], rows) if spread is None else [tag("h3", "Map"), spread]
    many = found["k"] > COLOR_COUNT
    return section(
        "clusters",
        "The clusters",
        tag("div", tag("div", sized, None if many else _cards(found)), tag("div", mapped), class_="pair"),
        _cards(found) if many else None,
        profiles(found),
    )


def _cards(found: Mapping[str, Any]) -> Markup:
    items = []
    for cluster, z in enumerate(found["profiles"].get("standardised", ())):
        items.append(tag("li", chip(cluster), " ", traits(found["columns"], z)))
    return tag("ul", items, class_="cards")


def profiles(found: Mapping[str, Any]) -> Markup:
    """Show the centres as a coloured table: original units, and below them the distance from the average."""
    profile = found["profiles"]
    if (missing := absence_note(profile)) is not None:
        return tag("div", tag("h3", "Centres"), missing, id="profiles")
    all_rows = profile["against"] == "all rows"
    head: list[Node] = ["column", *map(chip, range(found["k"])), *(["all rows"] if profile["mean"] else [])]
    rows = []
    for at, facts in enumerate(found["columns"]):
        own = [(c[at], z[at]) for c, z in zip(profile["centers"], profile["standardised"], strict=True)]
        sd = profile["sd"][at] if profile["sd"] else 0.0
        cells: list[Node] = [column_title(facts), *(_heat_cell(value, z, sd) for value, z in own)]
        if profile["mean"]:
            deviation = tag("small", f"± {format_by_deviation(sd, sd)}")
            cells.append(tag("td", format_by_deviation(profile["mean"][at], sd), tag("br"), deviation))
        rows.append(cells)
    caption = "Centres of the clusters, by column"
    against = (
        "the mean of all rows, in standard deviations"
        if all_rows
        else "the mean of the centres, in standard deviations of the centres"
    )
    summary = (
        f"Large numbers: the centre in original units. Small numbers: its distance from {against}. Warm colours are "
        "above, cool colours below."
    )
    return tag(
        "figure",
        table(head, rows, caption=caption, class_="heat"),
        tag("figcaption", summary),
        id="profiles",
        aria_label=f"{caption}: {found['k']} by {len(found['columns'])} values. {summary}",
    )


def _heat_cell(value: float, z: float, sd: float) -> Markup:
    side = "up" if z > 0 else "down"
    strength = f"--part: {min(abs(z) / FULL_COLOR_DEVIATION, 1.0) * 100:.0f}%"
    return tag(
        "td", format_by_deviation(value, sd), tag("br"), tag("small", format_signed(z)), class_=side, style=strength
    )


def quality_section(run: FinishedRun) -> Markup:
    """Show how clear and how good the partition is."""
    found = run.analysis
    fuzzy = absence_note(found["fuzziness"]) or bar_charts.draw_fuzziness(
        found["fuzziness"]["coefficient"], float(found["fuzziness"]["entropy"]), found["k"]
    )
    scores = absence_note(found["indices"])
    if scores is None:
        hard = found["m"] is None
        rows = [
            [index_name(name), format_number(float(facts["value"])), "lower" if facts["best"] == "min" else "higher"]
            for name, facts in found["indices"].items()
            if not (hard and name.startswith("partition"))
        ]
        sizes = found["sizes"].get("rows")
        counted = not sizes or sum(own or 0 for own in sizes) == _count_rows(found)
        counts_all = counted and not found["sizes"].get("earlier")
        caption = f"Validation indices over {'all rows' if counts_all else 'the rows that the sizes count'}"
        scores = table(["index", "value", "better is"], rows, caption=caption, class_="numbers")
    return section("quality", "How clear the clusters are", tag("div", fuzzy, tag("div", scores), class_="pair"))


def sites_section(run: FinishedRun) -> Markup:
    """Show how many rows of each cluster each site has."""
    found = run.analysis["composition"]
    if (missing := absence_note(found)) is not None:
        return section("sites", "The clusters at each site", missing)
    head: list[Node] = ["site", *map(chip, range(run.analysis["k"]))]
    rows: list[list[Node]] = [
        [site, *(tag("td", tag("em", "hidden")) if n is None else f"{n:,}" for n in counts)]
        for site, counts in found["sites"].items()
    ]
    listed_all = table(head, rows, caption="Rows of each site by nearest centre", class_="numbers")
    return section(
        "sites",
        "The clusters at each site",
        tag("div", bar_charts.draw_composition(found["sites"]), listed_all, class_="pair"),
    )


def convergence_section(run: FinishedRun) -> Markup:
    """Show how the run converged."""
    found = run.analysis["convergence"]
    if (missing := absence_note(found)) is not None:
        return section("course", "How the run converged", missing)
    if not found["shifts"] or None in found["shifts"]:
        took = f"The run took {count_noun(found['rounds'], 'round')}. How far the centres moved is not known."
        why = took if found["rounds"] > 1 else "The method has no rounds."
        return section("course", "How the run converged", tag("p", why, class_="absent"))
    shifts, tol = [float(shift) for shift in found["shifts"]], found["tol"]
    if found["objective"] is None and run.analysis["split"] == "columns":
        left = f"{shifts[-1]:,.0f} in the last round, round {found['rounds']}."
        summary = f"Only labels were revealed. Rows that changed cluster: {shifts[0]:,.0f} in the first round, {left}"
        return section("course", "How the run converged", tag("p", summary))
    moving = "distances" if run.analysis["split"] == "columns" else "centres"
    moved = (
        f"The {moving} moved by {format_number(shifts[0], 2)} in the first round and by "
        f"{format_number(shifts[-1], 2)} in the last"
    )
    if found["stopped"]:
        ended = f"which was round {found['rounds']}, the maximum that the study allows."
    elif tol:
        ended = (
            f"which is below the tolerance of {format_number(tol)}. The run took "
            f"{count_noun(found['rounds'], 'round')}."
        )
    else:
        ended = f"which was round {found['rounds']}."
    summary = tag("div", tag("p", f"{moved}, {ended}"), _objective_course(found))
    return section(
        "course",
        "How the run converged",
        tag("div", line_charts.draw_convergence(found, moving), summary, class_="pair"),
    )


def _objective_course(found: Mapping[str, Any]) -> Markup | None:
    """Give the objective's first and last value, if the method has one, or what is known of it."""
    last, values = found["objective"], found["objectives"]
    if last is None or not values:
        return None
    ended = format_number(float(last), 6)
    if None not in values:
        return tag("p", f"The objective went from {format_number(float(values[0]), 6)} to {ended}.")
    if not math.isfinite(float(last)):
        return tag("p", "The objective is not known, because the sums of some clusters were never opened.")
    return tag(
        "p",
        f"At the end, the squared distances of the rows to their centres add up to about {ended}: the sums of some "
        "clusters stayed closed, so each cluster counts with the rows that it had when its sums were opened last. The "
        "objectives of earlier iterations are not compared with it, because they were computed from other rows.",
    )
