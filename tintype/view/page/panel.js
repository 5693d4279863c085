// The panel at the right: a node, a module or a size, with everything that is known of it.

function panelOf(app, selected) {
  if (!selected) return null;
  const program = app.programs[selected.program];
  const make = { node: nodePanel, module: modulePanel, dim: dimPanel }[selected.kind];
  return element("aside", { class: "panel", "aria-label": "Details" },
    element("button", { type: "button", class: "close", title: "close (Esc)", "aria-label": "close", onclick: () => app.select(null) }, "×"),
    make(app, program, selected));
}

const entry = (title, ...content) => element("div", { class: "entry" }, element("div", { class: "entry-title" }, title), element("div", { class: "entry-content" }, content));

function breadcrumb(app, program, number) {
  const chain = program.chain(number);
  if (chain.length === 0) return element("span", { class: "hint" }, "the model itself");
  return element("span", { class: "crumbs" }, chain.flatMap((module, position) => [
    position > 0 && element("span", { class: "crumb-end" }, "/"),
    button(module.label, () => app.select({ kind: "module", program: program.number, number: module.number }), { class: "link" }),
  ]));
}

function nodePanel(app, program, selected) {
  const node = program.nodes[selected.number];
  const weight = node.target === undefined ? undefined : program.weights[node.target];
  return [
    element("div", { class: "panel-kind" }, element("span", { class: `dot ${familyOf(node)}` }), node.backward ? `${node.kind}, backward` : node.kind),
    element("h2", {}, node.target ?? node.name),
    node.operator && element("div", { class: "panel-sub" }, element("code", {}, node.operator)),
    app.view !== "graph" && button("Show in the graph", () => app.openNumber(program, node.number), { class: "quiet" }),
    node.kind !== "output" && entry("Value", sizeText(app, program, program.typeOf(node)), bytesNote(app, program, node)),
    node.kind === "call" && entry("Module", breadcrumb(app, program, node.module)),
    node.step !== undefined && entry("Operations", formulaText(app, program, node.step), " for each step"),
    node.operations !== undefined && node.step === undefined && entry("Operations", node.operations === null
      ? element("span", { class: "warn" }, "no formula for this operator") : formulaText(app, program, node.operations)),
    node.arguments && entry("Arguments", element("table", { class: "arguments" }, node.arguments.map(([name, value]) => argumentRow(app, program, node, name, value)))),
    node.users.length > 0 && entry(`Used by ${node.users.length}`, element("div", { class: "references" }, node.users.slice(0, 60).map((user) => nodeLink(app, program, user)))),
    weight && weightEntry(weight),
    originEntry(app, program, node),
    linesEntry(app, node),
  ];
}

function bytesNote(app, program, node) {
  const { bytes } = program.types[node.type];
  return bytes === undefined ? null : element("div", { class: "hint" }, formulaText(app, program, bytes, { bytes: true }), " bytes".repeat(typeof program.formulas[bytes].value !== "number"));
}

function argumentRow(app, program, node, name, value) {
  const single = typeof value === "object" && value !== null && !Array.isArray(value) ? program.nodes[value.node] : null;
  return element("tr", {}, element("th", {}, name), element("td", {}, argumentText(app, program, value, node),
    single && element("div", { class: "hint" }, sizeText(app, program, program.typeOf(single)))));
}

function weightEntry(weight) {
  const found = weight.statistics;
  const rows = [element("div", {}, `${weight.type}, ${shortBytes(weight.bytes)}`, weight.same_as && ` · the same tensor as ${weight.same_as}`)];
  if (found && found.min !== undefined) {
    const number = (value) => (value === null ? "—" : Number(value).toPrecision(4));
    rows.push(element("table", { class: "arguments" },
      ["min", "max", "mean", "std"].map((name) => element("tr", {}, element("th", {}, name), element("td", {}, number(found[name])))),
      element("tr", {}, element("th", {}, "zeros"), element("td", {}, `${wholeNumber(found.zeros)} of ${wholeNumber(found.count)}`)),
      found.not_finite > 0 && element("tr", { class: "warn" }, element("th", {}, "nan or inf"), element("td", {}, wholeNumber(found.not_finite)))));
    if (found.histogram) rows.push(histogram(found.histogram));
  }
  return entry("Weight", rows);
}

function histogram(counts) {
  const picture = shape("svg", { viewBox: `0 0 ${counts.length * 8} 48`, class: "histogram", preserveAspectRatio: "none", role: "img", "aria-label": "distribution of the numbers" });
  const most = Math.max(...counts);
  counts.forEach((count, position) => {
    const height = count === 0 ? 0 : Math.max(1, (count / most) * 46);
    picture.append(shape("rect", { x: position * 8 + 0.5, y: 48 - height, width: 7, height }));
  });
  return picture;
}

// The nodes of other stages that a node was made of, and those that were made of it.
function originEntry(app, program, node) {
  const links = [];
  for (const other of app.programs) {
    if (other === program) continue;
    const before = (node.from || []).map(([name, target]) => [other.byNodeName.get(name), target]).filter(([found, target]) => found?.operator === target).map(([found]) => found);
    const after = other.calls.filter((each) => (each.from || []).some(([name, target]) => name === node.name && target === node.operator));
    for (const [title, found] of [[`made of, in ${other.name}`, before], [`became, in ${other.name}`, after]]) {
      if (found.length > 0) links.push(entry(title, element("div", { class: "references" }, found.slice(0, 40).map((each) => nodeLink(app, other, each.number)))));
    }
  }
  if (links.length === 0 && node.from) links.push(entry("Made of", node.from.map(([name]) => element("code", { class: "chip" }, name))));
  if (node.step !== undefined && program.hasBackward) {
    const others = program.calls.filter((each) => each.step === node.step && Boolean(each.backward) !== Boolean(node.backward));
    if (others.length > 0) links.push(entry(node.backward ? "gradient of" : "gradient computed by", element("div", { class: "references" }, others.slice(0, 40).map((each) => nodeLink(app, program, each.number)))));
  }
  return links;
}

function linesEntry(app, node) {
  if (!node.lines) return null;
  const shown = [...node.lines].reverse().map((number) => app.data.lines[number]);
  return entry("Source", shown.map((line) => lineOf({ line })));
}

function modulePanel(app, program, selected) {
  const module = program.modules[selected.number];
  const alike = program.modules.filter((each) => each.like === module.like && each !== module && module.like !== undefined);
  return [
    element("div", { class: "panel-kind" }, module.graph ? "graph" : "module"),
    element("h2", {}, module.name || program.name),
    element("div", { class: "panel-sub" }, module.class),
    module.calls !== undefined && module.calls > 0 && button("Show in the graph", () => app.openModule(program, module.number), { class: "quiet" }),
    module.parent !== null && entry("Inside of", breadcrumb(app, program, module.parent)),
    module.calls !== undefined && entry("Operator calls", wholeNumber(module.calls)),
    module.operations !== undefined && entry("Operations", formulaText(app, program, module.operations),
      module.without_formula > 0 && element("div", { class: "warn" }, `${module.without_formula} calls have no formula`)),
    module.parameters > 0 && entry("Parameters and buffers", `${wholeNumber(module.parameters)}, ${shortBytes(module.bytes)}`),
    alike.length > 0 && entry(`${alike.length} like it`, element("div", { class: "references" }, alike.slice(0, 30).map((each) =>
      button(each.name, () => app.select({ kind: "module", program: program.number, number: each.number }), { class: "link" })))),
    module.weights && entry("Its own weights", element("table", { class: "arguments" }, module.weights.map((name) => element("tr", {},
      element("th", {}, name.split(".").pop()), element("td", {}, program.weights[name].type, " ", element("span", { class: "hint" }, shortBytes(program.weights[name].bytes))))))),
    module.class !== undefined && operatorsEntry(program, module),
  ];
}

function operatorsEntry(program, module) {
  const counts = new Map();
  for (const node of program.calls) {
    if (node.module !== module.number && !program.chain(node.module).includes(module) && module.number !== 0) continue;
    counts.set(node.operator, (counts.get(node.operator) ?? 0) + 1);
  }
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  return sorted.length > 0 && entry("Operators", element("table", { class: "arguments" }, sorted.slice(0, 40).map(([name, count]) =>
    element("tr", {}, element("th", {}, wholeNumber(count)), element("td", {}, element("code", {}, name))))));
}

function dimPanel(app, program, selected) {
  const symbol = program.symbolsByName.get(selected.name);
  const carries = (number) => (program.types[program.nodes[number].type].symbols || []).includes(symbol.symbol);
  const flows = program.nodes.filter((node) => carries(node.number));
  const ends = program.calls.filter((node) => !carries(node.number) && (node.inputs || []).some(carries));
  const lines = program.contract.lines.filter((line) => line.symbols?.includes(symbol.symbol) || words(line.text).includes(symbol.name));
  const fixed = program.contract.lines.filter((line) => line.kind === "specialization");
  const bounds = symbol.lower === null && symbol.upper === null ? "any" : `${symbol.lower ?? "…"} to ${symbol.upper ?? "any"}`;
  return [
    element("div", { class: "panel-kind" }, "size"),
    element("h2", {}, dimButton(app, program, symbol.name)),
    button(`Show the ${flows.length} values that have it`, () => app.search(`dim:${symbol.name}`), { class: "quiet" }),
    entry("Range", bounds, symbol.example !== null && element("span", { class: "hint" }, ` · ${symbol.example} in the example`),
      symbol.example === null && element("span", { class: "hint" }, " · only the data decide it")),
    symbol.source && entry("Comes from", element("code", {}, symbol.source)),
    lines.length > 0 && entry("What is asked of it", lines.map((line) => element("div", { class: "line" },
      element("span", { class: `badge ${line.kind.replace(" ", "-")}` }, KIND_NAMES[line.kind] || line.kind),
      element("div", { class: "line-text" }, sizeText(app, program, line.text), lineOf(line))))),
    fixed.length > 0 && entry("Sizes that were fixed", fixed.map((line) => element("div", { class: "line" },
      element("span", { class: "badge specialization" }, "fixed"), element("div", { class: "line-text" }, line.text, lineOf(line))))),
    entry(`Flows through ${wholeNumber(flows.length)} of ${wholeNumber(program.nodes.length)} nodes`, flowBars(app, program, flows, symbol)),
    ends.length > 0 && entry(`Ends at ${wholeNumber(ends.length)}`, element("div", { class: "references" }, ends.slice(0, 60).map((node) => nodeLink(app, program, node.number)))),
  ];
}

// How many of a size's values are made in each of the outermost modules.
function flowBars(app, program, flows, symbol) {
  const counts = new Map();
  for (const node of flows) {
    const chain = program.chain(node.module);
    const place = node.kind === "call" ? chain.slice(0, 2).at(-1)?.name ?? "(model)" : node.kind;
    counts.set(place, (counts.get(place) ?? 0) + 1);
  }
  const most = Math.max(1, ...counts.values());
  return element("div", { class: "flow" }, [...counts].slice(0, 40).map(([place, count]) => {
    const bar = element("span", { class: `flow-bar hue${symbol.position % 8}` });
    bar.style.width = `${(count / most) * 100}%`;
    return element("div", { class: "flow-row" }, element("span", { class: "flow-name", title: place }, place), element("span", { class: "flow-track" }, bar), element("span", { class: "flow-count" }, count));
  }));
}
