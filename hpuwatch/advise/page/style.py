"""How the page looks: one style sheet, nothing from elsewhere, light, dark and on paper."""

from __future__ import annotations

from hpuwatch.advise.page.palette import DARK, LIGHT, rules, variables

_PAGE_LIGHT = (
    "--panel: #f6f8fa; --good: #14692f; --warn: #805500; --bad: #b42318; "
    "--note: #0b5394; --accent: #0b5394;"
)
_PAGE_DARK = (
    "--panel: #161b22; --good: #4ac26b; --warn: #d4a72c; --bad: #ff7b72; "
    "--note: #79b8ff; --accent: #79b8ff;"
)

_LAYOUT = """
* { box-sizing: border-box; }
html { scroll-padding-top: 4.5rem; }
body { margin: 0; background: var(--back); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main, header.top, footer { max-width: 54rem; margin: 0 auto; padding: 0 1.2rem; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 1.4rem 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.4rem; margin: 1.6rem 0 .6rem; overflow-wrap: anywhere; }
h3 { font-size: 1.2rem; margin: 2rem 0 .4rem; }
h4 { font-size: 1.02rem; margin: 1rem 0 .3rem; overflow-wrap: anywhere; }
p { margin: .45rem 0; overflow-wrap: anywhere; }
ul { margin: .4rem 0; padding-left: 1.2rem; } li { margin: .25rem 0; overflow-wrap: anywhere; }
a { color: var(--accent); }
.soft, footer, figcaption { color: var(--soft); }
.origin { position: sticky; top: 0; z-index: 2; margin: 0; padding: .45rem .8rem;
  border: 2px solid var(--good); border-radius: 6px; background: var(--back);
  font-size: .9rem; overflow-wrap: anywhere; }
.origin b { color: var(--good); }
.origin.simulated, .origin.predicted { border: 2px dashed var(--warn); }
.origin.simulated b, .origin.predicted b { color: var(--warn); }
.do { background: var(--panel); border: 1px solid var(--line); border-left: 5px solid
  var(--accent); border-radius: 6px; padding: .3rem 1rem .8rem; margin-top: 1rem; }
.do h3 { margin-top: .7rem; }
.lead { font-size: 1.12rem; font-weight: 600; }
pre { margin: .4rem 0; padding: .7rem .9rem; background: var(--back); border: 1px solid
  var(--line); border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere;
  user-select: all; -webkit-user-select: all; }
code, pre { font: .88em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
code { overflow-wrap: anywhere; unicode-bidi: isolate; } code.flag { white-space: nowrap; }
table:not(:has(th:nth-child(3), td:nth-child(3))) tbody th { width: 30%; }
dfn { font-style: normal; border-bottom: 1px dotted var(--soft); }
dl.words { margin: .5rem 0 .7rem; padding: .45rem .8rem; border-left: 3px solid var(--line);
  font-size: .88rem; color: var(--soft); }
dl.words dt { font-weight: 600; display: inline; color: var(--text); }
dl.words dt::after { content: ": "; } dl.words dd { display: inline; margin: 0; }
dl.glossary dt { font-weight: 600; margin-top: .5rem; } dl.glossary dd { margin: 0; }
article { border: 1px solid var(--line); border-radius: 6px; padding: .2rem 1rem .7rem;
  margin: .9rem 0; border-left: 5px solid var(--note); }
article.warning { border-left-color: var(--warn); }
article.error { border-left-color: var(--bad); }
.badge { display: inline-block; font-size: .8rem; font-weight: 600; border: 1px solid;
  border-radius: 1rem; padding: 0 .6rem; margin-right: .4rem; color: var(--note); }
.badge.warning { color: var(--warn); } .badge.error { color: var(--bad); }
.evidence { list-style: none; padding: 0; margin: .4rem 0; }
.evidence li { background: var(--panel); border-radius: 4px; padding: .3rem .6rem;
  margin: .25rem 0; }
.evidence .where { color: var(--soft); display: block; }
.evidence code { white-space: pre-wrap; }
figure { margin: 1.4rem 0; } figure h4 { margin: 0 0 .2rem; }
figcaption { font-size: .9rem; margin: .2rem 0 .5rem; overflow-wrap: anywhere; }
svg { display: block; max-width: 100%; height: auto; }
svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
.narrow { display: none; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem;
  font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0;
  border-bottom: 1px solid var(--line); }
td code, th code { overflow-wrap: break-word; }
thead th { color: var(--soft); font-weight: 600; } tbody th { font-weight: 500; }
.swatch { display: inline-block; vertical-align: -1px; width: 12px; height: 12px;
  margin-right: .5em; }
details { margin: .4rem 0; } summary { cursor: pointer; color: var(--accent); }
nav ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; }
footer { margin-top: 3rem; padding-bottom: 2rem; font-size: .85rem; }
footer hr { border: 0; border-top: 1px solid var(--line); }
hr.between { border: 0; border-top: 3px double var(--line); margin: 3rem 0 1rem; }
@media screen and (max-width: 46rem) { html { scroll-padding-top: 6rem; } .wide { display: none; } .narrow { display: block; }
  main, header.top, footer { padding: 0 .8rem; } h1 { font-size: 1.35rem; }
  table { font-size: .86rem; }
  thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden; }
  table, tbody, tr, tbody th, td { display: block; border: 0; padding: 0; }
  tr { border-bottom: 1px solid var(--line); padding: .35rem 0; }
  tbody th { font-weight: 600; }
  td[data-label]::before { content: attr(data-label) ": "; color: var(--soft); }
  article, .do { padding-left: .7rem; padding-right: .7rem; } }
@media print { :root { color-scheme: light; } .origin { position: static; } nav { display: none; }
  article, figure, pre, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  details::details-content { content-visibility: visible; block-size: auto; }
  body { font-size: 11pt; } }
"""

STYLE = (
    f"\n:root {{ color-scheme: light dark; {variables(LIGHT)} {_PAGE_LIGHT} }}\n"
    "@media screen and (prefers-color-scheme: dark) "
    f"{{ :root {{ {variables(DARK)} {_PAGE_DARK} }} }}\n"
    f"{rules()}\n{_LAYOUT}"
)
