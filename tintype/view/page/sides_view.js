// Two columns: stages of a program linked by origin, the backward half beside the forward half, or two programs compared.

function sidesView(app) {
  const choices = sideChoices(app);
  const chosen = choices.find((choice) => choice.key === app.side) ?? choices[0];
  app.side = chosen.key;
  const table = chosen.make();
  const rows = new Rows({
    name: "pair", label: "Side by side",
    render: (item) => pairRow(app, chosen, item),
    onselect: (item) => {
      const [program, node] = item.left ? [chosen.left, item.left] : [chosen.right, item.right];
      if (node) app.select({ kind: "node", program: program.number, number: node.number });
    },
  });
  const refresh = () => rows.setItems(app.onlyChanges && chosen.compares ? table.filter((row) => row.change !== "same") : table);
  refresh();
  const picker = element("select", { "aria-label": "what is side by side", onchange: (event) => {
    app.side = event.target.value;
    app.show("sides");
  } }, choices.map((choice) => {
    const option = element("option", { value: choice.key }, choice.title);
    option.selected = choice.key === chosen.key;
    return option;
  }));
  const filter = element("input", { type: "checkbox", onchange: (event) => {
    app.onlyChanges = event.target.checked;
    refresh();
  } });
  filter.checked = app.onlyChanges;
  const head = element("div", { class: "sides-head" }, picker,
    element("span", { class: "hint" }, chosen.note),
    chosen.compares && element("label", { class: "check" }, filter, "only what differs"));
  return {
    root: element("div", { class: "fill sides" }, head, chosen.compares && comparedSummary(app, chosen, table),
      element("div", { class: "pair-row pair-head" }, element("span", {}, chosen.titles[0]), element("span", {}, chosen.titles[1])), rows.root),
    focus: () => rows.root.focus(),
  };
}

function sideChoices(app) {
  const choices = [];
  for (const left of app.programs) {
    if (left.hasBackward) choices.push(backwardChoice(left));
    for (const right of app.programs) {
      if (right.number <= left.number) continue;
      const linked = right.calls.some((node) => (node.from || []).some(([name, target]) => left.byNodeName.get(name)?.operator === target));
      const shared = { left, right, key: `${left.number}-${right.number}`, titles: [left.name, right.name] };
      const sides = [{ program: left, nodes: left.calls }, { program: right, nodes: right.calls }];
      if (linked) {
        choices.push({ ...shared, title: `${left.name} → ${right.name}`, note: "Each call beside what a pass made of it.",
          make: () => alignByOrigin(...sides) });
      }
      choices.push({ ...shared, key: `${shared.key}-diff`, title: `${left.name} ↔ ${right.name}, compared`, compares: true,
        note: "Calls of one operator in one module are matched in their order.", make: () => alignByStructure(...sides) });
    }
  }
  // programs that are there to be compared begin with that
  return app.data.compare ? choices.sort((a, b) => Boolean(b.compares) - Boolean(a.compares)) : choices;
}

function backwardChoice(program) {
  return {
    key: `${program.number}-backward`, left: program, right: program, title: `${program.name}: forward and backward`,
    titles: ["forward", "backward"], note: "What computes a gradient is beside the step that it is the gradient of.",
    make: () => alignByStep(program.calls.filter((node) => !node.backward), program.calls.filter((node) => node.backward)),
  };
}

function pairRow(app, chosen, item) {
  const cell = (program, node) => element("div", { class: "pair-cell" },
    node && [element("span", { class: `dot ${familyOf(node)}` }),
      element("span", { class: "node-name", onclick: (event) => {
        event.stopPropagation();
        app.select({ kind: "node", program: program.number, number: node.number });
      } }, node.name),
      !node.name.startsWith(shortOperator(node.operator)) && element("span", { class: "operator" }, shortOperator(node.operator)),
      element("span", { class: "pair-module" }, program.modules[node.module].name),
      element("span", { class: "spacer" }), sizeText(app, program, program.typeOf(node))]);
  return element("div", { class: `pair-row ${item.change ?? ""} ${item.left ? "begins" : "continues"}` },
    cell(chosen.left, item.left), cell(chosen.right, item.right));
}

function comparedSummary(app, chosen, table) {
  const counts = {};
  for (const row of table) counts[row.change] = (counts[row.change] ?? 0) + 1;
  const { left, right } = chosen;
  const operators = (program) => {
    const found = {};
    for (const node of program.calls) found[node.operator] = (found[node.operator] ?? 0) + 1;
    return found;
  };
  const weights = (program) => Object.fromEntries(Object.entries(program.weights).map(([name, weight]) => [name, weight.type]));
  const lines = (program) => Object.fromEntries(program.contract.lines.map((line) => [line.text, "asked"]));
  return element("div", { class: "compared" },
    ["same", "changed", "removed", "added"].map((kind) => element("span", { class: `tally ${kind}` }, `${wholeNumber(counts[kind] ?? 0)} ${kind}`)),
    changeTable("operators", changedEntries(operators(left), operators(right))),
    changeTable("weights", changedEntries(weights(left), weights(right))),
    changeTable("contract", changedEntries(lines(left), lines(right))));
}

function changeTable(title, entries) {
  if (entries.length === 0) return element("span", { class: "tally" }, `${title}: the same`);
  return element("details", { class: "change" }, element("summary", {}, `${title}: ${entries.length} differ`),
    element("table", {}, entries.slice(0, 500).map(([name, before, after]) => element("tr", {},
      element("td", {}, element("code", {}, name)), element("td", {}, before ?? "—"), element("td", {}, "→"), element("td", {}, after ?? "—")))));
}
