"""The report as a browser sees it: nothing asked for, nothing wrong, something to say for every figure."""

from itertools import pairwise

import pytest

FIGURES = """[...document.querySelectorAll('figure')].map(figure => {
  const svg = figure.querySelector('svg');
  if (!svg) return [figure.id, figure.getAttribute('aria-label') || ''];
  const ids = (svg.getAttribute('aria-labelledby') || '').split(' ');
  return [figure.id, ids.map(id => (document.getElementById(id) || {}).textContent || '').join(' ')];
})"""
# Colours as the browser computed them, over the nearest ground that is not transparent.
CONTRASTS = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = colour => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = c => { const [r, g, b] = c.slice(0, 3).map(v => v / 255).map(
    v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c[3] > 250) return c; } return [255, 255, 255, 255]; };
  document.querySelectorAll('.heat td').forEach(cell => cell.style.setProperty('--part', '100%'));
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || e.closest('title, desc, .skip')) continue;
    const drawn = e.closest('svg'), style = getComputedStyle(e);
    const own = e.closest('.on') ? rgb(style.getPropertyValue('--c')) : null;
    const a = light(rgb(drawn ? style.fill : style.color)), b = light(own || ground(drawn || e));
    found.push([(Math.max(a, b) + .05) / (Math.min(a, b) + .05), walk.currentNode.data.slice(0, 40)]);
  }
  return found.sort((p, q) => p[0] - q[0]).slice(0, 3);
})()"""
HEADINGS = "[...document.querySelectorAll('h1, h2, h3')].map(h => +h.tagName[1])"
CELLS = "[...document.querySelectorAll('th')].filter(th => !th.scope).length"


@pytest.fixture(params=["rows", "columns"])
def report(request, folders):
    return folders[request.param] / "report.html"


def test_nothing_is_asked_for_and_nothing_goes_wrong(browser, report):
    browser.open(report)
    assert browser.requests() == [report.as_uri()]
    assert browser.complaints() == []


def test_the_browser_would_have_told(browser, tmp_path):
    page = tmp_path / "page.html"
    page.write_text('<img src="http://127.0.0.1:9/x.png"><script>nothing.there()</script>')
    browser.open(page)
    assert browser.requests() == [page.as_uri(), "http://127.0.0.1:9/x.png"]
    assert browser.complaints()


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_sticks_out(browser, report, width):
    browser.open(report, width=width)
    assert browser.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [width, width]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_can_be_read(browser, report, dark):
    browser.open(report, dark=dark)
    worst = browser.evaluate(CONTRASTS)
    assert worst[0][0] >= 4.5, worst  # AA


def test_every_figure_says_what_it_shows(browser, folders):
    browser.open(folders["rows"] / "report.html")
    found = dict(browser.evaluate(FIGURES))
    assert set(found) == {"k-curve", "sizes", "map", "profiles", "fuzziness", "composition", "convergence"}
    assert [name for name, told in found.items() if len(told) < 60] == []
    assert "Choice of K: 3 clusters" in found["k-curve"]
    browser.open(folders["columns"] / "report.html")
    assert all(len(told) >= 60 for _, told in browser.evaluate(FIGURES))


def test_headings_and_tables_are_in_order(browser, report):
    browser.open(report)
    levels = browser.evaluate(HEADINGS)
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert browser.evaluate(CELLS) == 0
    assert browser.evaluate("document.querySelectorAll('table:not(:has(caption))').length") == 0
    assert browser.evaluate("document.documentElement.lang") == "en"


def test_hostile_names_are_only_text(browser, folders):
    browser.open(folders["rows"] / "report.html")
    assert browser.evaluate("document.scripts.length") == 0
    assert browser.evaluate("document.body.textContent.includes('<script>alert(1)</script>')")


def test_it_prints(browser, report, tmp_path):
    browser.open(report)
    browser.printed(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
