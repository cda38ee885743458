"""How the status page looks: one style sheet, nothing from elsewhere, light and dark."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1b1f24; --soft: #57606a;
  --line: #d0d7de; --panel: #f6f8fa; --good: #1a7f37; --busy: #9a6700; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --back: #0d1117; --text: #e6edf3;
  --soft: #9aa4af; --line: #30363d; --panel: #161b22; --good: #4ac26b; --busy: #d4a72c;
  --bad: #ff7b72; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; background: var(--back);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p { margin: .3rem 0; }
.soft, footer { color: var(--soft); }
footer { margin-top: 2rem; font-size: .85rem; border-top: 1px solid var(--line); }
.phase { display: inline-block; border: 2px solid; border-radius: 1rem;
  padding: 0 .8rem; font-weight: 600; }
.good { color: var(--good); } .busy { color: var(--busy); } .bad { color: var(--bad); }
.simulated { border: 2px dashed var(--busy); color: var(--busy); padding: .4rem .8rem;
  font-weight: 600; margin: .8rem 0; }
.bar { display: flex; height: 1.6rem; border: 1px solid var(--line); background:
  var(--panel); border-radius: 4px; overflow: hidden; margin: .3rem 0; }
.bar i { display: block; height: 100%; min-width: 1px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; }
td.n, th.n { text-align: right; }
td.n { white-space: nowrap; }
@media (max-width: 30rem) { body { padding: .6rem; } table { font-size: .85rem; }
  th, td { padding-right: .5rem; } td.n { white-space: normal; } }
td.text:last-child { overflow-wrap: anywhere; }
.swatch { display: inline-block; width: .8em; height: .8em; margin-right: .5em;
  border-radius: 2px; }
.done { background: var(--good); } .weights { background: #0072b2; }
.profile { background: #56b4e9; } .graphs { background: #d55e00; }
.idle { background: #f0c000; } .dummy { background: #6e7781; }
.kv { background: #009e73; } .held { background: #cc79a7; } .other { background: #8c959f; }
"""
