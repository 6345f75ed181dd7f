"""Pages for the browser: one HTML file of a verdict, a graph, steps and plots.

A page is data (`page.py`): a verdict, four answers for the first screen, and sections of blocks.
`rendering.py` makes HTML of it and knows no operation; `toolkit/operations/pages` makes the page of
each kind of folder.

    Page ── rendering ──▶ report.html
            page.html.j2      structure and text, readable without a script
            static/           style, and the viewers of graph and steps: plain scripts, one module
            vendor/           dagre, which lays out the part of the graph around the culprit
            plots.py          errors as inline SVG

Text of a page may come from a hostile folder. Four walls keep it inert, each of which would do:

1. Each text is made printable (`plain_text`), so that it hides or reverses nothing.
2. Jinja escapes it, and refuses undefined names.
3. The scripts write text nodes only; data is a JSON block without `<`, `>` and `&`.
4. The content security policy allows the styles and scripts of this room by their digests, and
   nothing else: no inline code, no request, no form, no frame.

The whole graph has a layout of its own in linear time (`static/whole.js`): dagre takes two seconds
for 600 nodes. Rejected: Graphviz as WebAssembly (0.8 MB, and a policy that allows WebAssembly), a
framework, and pictures drawn on the server, which cannot be searched.
"""
