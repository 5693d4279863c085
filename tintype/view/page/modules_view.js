// The modules as a table that opens and closes: what each holds and costs. Neighbours that are alike are one row.

function modulesView(app, program) {
  const open = (app.openModules[program.number] ??= new Set(initiallyOpen(program)));
  const total = program.modules[0];
  const rows = new Rows({
    name: "module", label: "Modules",
    render: (item) => moduleRow(app, program, item, open, toggle, total),
    onselect: (item) => app.select({ kind: "module", program: program.number, number: item.module.number }),
    onopen: (item) => set(item, true), onclose: (item) => set(item, false), onenter: (item) => toggle(item),
  });
  const refresh = () => rows.setItems(moduleItems(program, open));
  const set = (item, wanted) => {
    if (wanted) open.add(item.key);
    else open.delete(item.key);
    refresh();
  };
  const toggle = (item) => set(item, !open.has(item.key));
  refresh();
  const head = element("div", { class: "row table-head" },
    ["module", "class", "calls", "parameters", "bytes", "operations", "as a formula"].map((title, position) => element("span", { class: `column c${position}` }, title)));
  return { root: element("div", { class: "fill module-table" }, head, rows.root), focus: () => rows.root.focus() };
}

// Folded neighbours: [first, ...others] for each group.
function foldedModules(children) {
  const groups = [];
  for (const module of children) {
    const last = groups.at(-1);
    const numbered = /^\d+$/.test(module.label) && last && /^\d+$/.test(last.at(-1).label);
    if (numbered && last[0].like === module.like && module.like !== undefined) last.push(module);
    else groups.push([module]);
  }
  return groups;
}

function initiallyOpen(program) {
  const open = new Set(["m0"]);
  const visit = (module, depth) => {
    if (depth > 2) return;
    for (const [first] of foldedModules(module.children)) {
      if (first.children.length > 0 && first.children.length <= 12) {
        open.add(`m${first.number}`);
        visit(first, depth + 1);
      }
    }
  };
  visit(program.modules[0], 0);
  return open;
}

function moduleItems(program, open) {
  const items = [];
  const visit = (group, depth) => {
    const [first] = group;
    const key = `m${first.number}`;
    items.push({ key, module: first, group, depth, canOpen: first.children.length > 0 });
    if (group.length > 1) {
      const all = `all${first.number}`;
      if (open.has(key)) for (const inner of foldedModules(first.children)) visit(inner, depth + 1);
      items.push({ key: all, module: first, group, depth, others: group.slice(1), canOpen: true });
      if (open.has(all)) for (const module of group.slice(1)) visit([module], depth);
      return;
    }
    if (open.has(key)) for (const inner of foldedModules(first.children)) visit(inner, depth + 1);
  };
  visit([program.modules[0]], 0);
  return items;
}

function moduleRow(app, program, item, open, toggle, total) {
  const { module } = item;
  const row = element("div", { class: `module-row ${item.others ? "more" : ""}` });
  row.setAttribute("aria-level", item.depth + 1);
  if (item.canOpen) row.setAttribute("aria-expanded", String(open.has(item.key)));
  const label = item.others
    ? `${item.others[0].label} … ${item.others.at(-1).label} · ${item.others.length} more like it`
    : module.label || module.class || program.name;
  const first = element("span", { class: "column c0" }, indent(item.depth),
    chevron(item.canOpen, open.has(item.key), () => toggle(item)),
    element("span", { class: "module-label" }, label));
  append(row, [first]);
  if (item.others) return row;
  const share = total.parameters ? module.parameters / total.parameters : 0;
  const bar = element("span", { class: "bar" });
  bar.style.width = `${Math.round(share * 100)}%`;
  append(row, [
    element("span", { class: "column c1" }, module.class || ""),
    element("span", { class: "column c2" }, module.calls ? wholeNumber(module.calls) : ""),
    element("span", { class: "column c3", title: wholeNumber(module.parameters ?? 0) }, bar, module.parameters ? shortNumber(module.parameters) : ""),
    element("span", { class: "column c4" }, module.bytes ? shortBytes(module.bytes) : ""),
    element("span", { class: "column c5" }, operationsAt(app, program, module)),
    element("span", { class: "column c6", title: formulaOf(program, module) }, formulaOf(program, module) && sizeText(app, program, formulaOf(program, module), { formula: true })),
  ]);
  return row;
}

// The operations of a module for the sizes on the first page.
function operationsAt(app, program, module) {
  if (module.operations === undefined || module.calls === 0) return "";
  const value = evaluateOrNull(program.formulas[module.operations].value, app.symbolsOf(program));
  const missing = module.without_formula > 0 && element("span", { class: "warn", title: `${module.without_formula} calls have no formula` }, " +?");
  return [value === null ? "?" : shortNumber(value), missing];
}

// The formula as text, where sizes are in it.
function formulaOf(program, module) {
  const formula = program.formulas[module.operations];
  return formula === undefined || typeof formula.value === "number" ? "" : formula.text;
}

function indent(depth) {
  return Array.from({ length: depth }, () => element("span", { class: "indent" }));
}

function chevron(can, open, onclick) {
  if (!can) return element("span", { class: "chevron" });
  return element("span", { class: `chevron ${open ? "open" : ""}`, onclick: (event) => {
    event.stopPropagation();
    onclick();
  } }, "›");
}
