/* The slider over the steps of the compile. */
const KINDS = { ok: "values agree", wrong: "wrong", unknown: "not known", "": "not checked" };

function showStep(index) {
  const step = trace.steps[index];
  const panel = byId("step");
  const parts = [stepHead(step, index), stepFacts(step)];
  const before = nodesOf(step.before), after = nodesOf(step.after);
  if (step.kernel) parts.push(...kernelParts(step.kernel));
  else if (step.kind === "stage") parts.push(listing(`${after.length} nodes`, after.map((node) => node.text ?? node.name)));
  else if (step.before === undefined || step.after === undefined) parts.push(element("p", { class: "note" }, "The graphs of this step were not kept."));
  else if (step.before === step.after) parts.push(element("p", { class: "note" }, "This step changed nothing."));
  else parts.push(diffTable(before, after));
  parts.push(errorTable(step));
  panel.replaceChildren(...parts.filter(Boolean));
  const row = panel.querySelector("tr.culprit");
  if (row) row.closest(".changes").scrollTop = row.offsetTop - 120;
  byId("slider").value = index;
  byId("slider").setAttribute("aria-valuetext", `${step.id}, ${KINDS[step.status ?? ""]}`);
  for (const [at, tick] of [...byId("ticks").children].entries()) tick.classList.toggle("now", at === index);
}

function stepHead(step, index) {
  const status = step.status ?? "";
  return element("h3", { class: "step-name" },
    element("span", { class: "count" }, `${index + 1} of ${trace.steps.length}`), " ", step.id, " ",
    element("span", { class: `mark ${status || "none"}` }, KINDS[status]));
}

function stepFacts(step) {
  const rows = [];
  if (step.mismatch) rows.push(["first wrong", `${step.node ? `${step.node}: ` : ""}${step.mismatch}`]);
  if (step.reason) rows.push(["reason", step.reason]);
  if (step.numerics) rows.push(["declares", step.numerics]);
  if (step.compared) rows.push(["compared", `${step.compared.toLocaleString("en")} values`]);
  if (step.seconds !== undefined) rows.push(["took", `${figure(step.seconds * 1000)} ms`]);
  if (step.vetoed) rows.push(["vetoed", "yes"]);
  for (const each of (step.rewrites ?? []).slice(0, 12)) {
    rows.push([`rewrite ${each.number}`, `${each.rule}${each.vetoed ? " (vetoed)" : ""}: ${(each.nodes ?? []).join(", ")}`]);
  }
  const more = (step.rewrites ?? []).length - 12;
  if (more > 0) rows.push(["rewrites", `${more} more`]);
  return rows.length && element("dl", { class: "facts" }, rows.flatMap(([label, text]) => [element("dt", {}, label), element("dd", {}, text)]));
}

function listing(label, lines, marked = new Set()) {
  const shown = lines.slice(0, 2000);
  return element("figure", { class: "listing" }, element("figcaption", {}, label),
    element("pre", { class: "code", tabindex: 0, role: "region", "aria-label": label },
      shown.map((line, at) => (marked.has(at + 1) ? element("span", { class: "bad" }, `${line}\n`) : `${line}\n`))),
    lines.length > shown.length ? element("p", { class: "note" }, `${lines.length - shown.length} more lines are not shown.`) : undefined);
}

function kernelParts(kernel) {
  const nodes = (kernel.nodes ?? []).join(", ") || "all nodes of the graph";
  const parts = [element("p", { class: "note" }, `Computes ${nodes}.`)];
  if (kernel.ir) parts.push(listing("Loop IR", kernel.ir.split("\n")));
  if (kernel.source) parts.push(listing("Generated source", kernel.source.split("\n"), new Set(kernel.wrong_lines ?? [])));
  return parts;
}

function errorTable(step) {
  if (step.kind === "stage") return undefined;
  if (step.errors === undefined) return element("p", { class: "note" }, "The errors of this step were not measured.");
  if (!step.errors.length) return element("p", { class: "note" }, "No value changed.");
  const chip = (ulp) => element("td", { class: "number" }, element("span", { class: `chip e${classOf(ulpOf(ulp))}` }, figure(ulp)));
  const rows = step.errors.slice(0, 60).map((each) => element("tr", {},
    element("td", {}, each.node ?? each.value), element("td", {}, each.dtype),
    chip(each.before.ulp), chip(each.after.ulp), element("td", { class: "number" }, figure(each.after.abs))));
  const columns = ["value", "dtype", "ULP before", "ULP after", "abs after"];
  return element("div", { class: "scroll values", tabindex: 0, role: "region", "aria-label": "Values that changed" },
    element("table", {}, element("caption", {}, `Values that changed: ${step.errors.length}. Errors are against float64.`),
      element("thead", {}, element("tr", {}, columns.map((name, at) => element("th", { scope: "col", class: at > 1 ? "number" : undefined }, name)))),
      element("tbody", {}, rows)));
}

function startSteps() {
  const slider = byId("slider");
  const last = trace.steps.length - 1;
  const focus = Math.min(data.focus.step, last);
  slider.max = last;
  const go = (index) => showStep(Math.max(0, Math.min(last, index)));
  slider.addEventListener("input", () => go(Number(slider.value)));
  byId("earlier").addEventListener("click", () => go(Number(slider.value) - 1));
  byId("later").addEventListener("click", () => go(Number(slider.value) + 1));
  byId("to-culprit").addEventListener("click", () => go(focus));
  byId("ticks").append(...trace.steps.map((step, at) =>
    element("span", { class: `${step.status || "none"}${step.before !== step.after ? " changed" : ""}`, title: step.id, on: { click: () => go(at) } })));
  byId("steps-bar").hidden = false;
  go(focus);
}
