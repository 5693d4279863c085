// The graph, nested by module, in the order in which it runs. The lines at the left lead from the node that is
// selected to what it is given and to what uses it.

function graphView(app, program) {
  const tree = (app.trees[program.number] ??= groupedNodes(program));
  const open = (app.openGroups[program.number] ??= new Set(initialGroups(tree)));
  const found = findNodes(program, app.query);
  const arcs = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  arcs.setAttribute("class", "arcs");
  arcs.setAttribute("aria-hidden", "true");
  const rows = new Rows({
    name: "node", label: "Graph",
    render: (item) => (item.node ? nodeRow(app, program, item) : groupRow(app, program, item, found !== null || open.has(item.group.key), toggle)),
    onselect: (item) => app.select(item.node
      ? { kind: "node", program: program.number, number: item.node.number }
      : { kind: "module", program: program.number, number: item.group.module }),
    onopen: (item) => item.group && set(item, true),
    onclose: (item, position) => (item.group && open.has(item.group.key) ? set(item, false) : selectParent(position)),
    onenter: (item) => item.group && toggle(item),
    ondraw: () => drawArcs(program, rows, arcs, app.selected),
  });
  const refresh = () => rows.setItems(flattened(tree, open, found));
  const set = (item, wanted) => {
    for (const key of item.keys ?? [item.group.key]) wanted ? open.add(key) : open.delete(key);
    refresh();
  };
  const toggle = (item) => set(item, !open.has(item.group.key));
  const selectParent = (position) => {
    const { depth } = rows.items[position];
    for (let at = position - 1; at >= 0; at -= 1) if (rows.items[at].depth < depth) return rows.select(at);
    return undefined;
  };
  refresh();
  const root = element("div", { class: "fill graph" }, element("div", { class: "graph-body" }, rows.root, arcs),
    found !== null && element("div", { class: "found", role: "status" },
      `${wholeNumber(found.size)} of ${wholeNumber(program.nodes.length)} nodes`, button("clear", () => app.search(""), { class: "link" })));
  return {
    root,
    focus: () => rows.root.focus(),
    // open what a node is in, and go there
    reveal: (number) => {
      for (const key of keysAround(tree, number)) open.add(key);
      refresh();
      const position = rows.items.findIndex((item) => item.node?.number === number);
      if (position >= 0) rows.select(position, { quiet: true });
    },
    revealModule: (number) => {
      const first = program.nodes.find((node) => node.kind === "call" && (node.module === number || program.chain(node.module).some((m) => m.number === number)));
      if (!first) return;
      for (const key of keysAround(tree, first.number)) open.add(key);
      refresh();
      const position = rows.items.findIndex((item) => item.group?.module === number);
      rows.select(position >= 0 ? position : 0, { quiet: true });
    },
    step: (direction) => {
      const matches = rows.items.map((item, position) => (item.node ? position : -1)).filter((position) => position >= 0);
      const next = direction > 0 ? matches.find((p) => p > rows.selected) ?? matches[0] : matches.findLast((p) => p < rows.selected) ?? matches.at(-1);
      if (next !== undefined) rows.select(next);
    },
  };
}

// Nodes in groups: a group for each run of nodes that one module makes, with those of the modules inside of it.
function groupedNodes(program) {
  const root = { key: "root", module: 0, items: [], parent: null };
  const given = { key: "given", title: "Inputs", module: 0, items: [], parent: root };
  const weights = { key: "weights", title: "Parameters, buffers and constants", module: 0, items: [], parent: root };
  let serial = 0;
  let current = root;
  for (const node of program.nodes) {
    const inner = program.modules[node.module].graph;
    if (node.kind === "input" && !inner) given.items.push({ node });
    else if (node.kind !== "call" && node.kind !== "output" && !inner) weights.items.push({ node });
    else {
      const chain = program.chain(node.module).map((module) => module.number);
      while (current !== root && !chain.includes(current.module)) current = current.parent;
      for (const module of chain.slice(current === root ? 0 : chain.indexOf(current.module) + 1)) {
        const group = { key: `g${serial}`, module, items: [], parent: current, like: program.modules[module].like, label: program.modules[module].label };
        serial += 1;
        current.items.push({ group });
        current = group;
      }
      current.items.push({ node });
    }
  }
  root.items.unshift(...[given, weights].filter((group) => group.items.length > 0).map((group) => ({ group })));
  for (const group of [...allGroups(root)].reverse()) {
    group.count = group.items.reduce((sum, item) => sum + (item.group ? item.group.count : 1), 0);
    group.whole = group.count === program.modules[group.module].calls; // all that the module does
  }
  return root;
}

function* allGroups(group) {
  yield group;
  for (const item of group.items) if (item.group) yield* allGroups(item.group);
}

function initialGroups(root) {
  const open = ["root", "given"];
  let shown = root.items.length;
  let level = root.items.filter((item) => item.group && !item.group.title).map((item) => item.group);
  while (level.length > 0 && shown < 120) {
    const next = [];
    for (const group of level) {
      if (shown + group.items.length > 160) continue;
      open.push(group.key);
      shown += foldedItems(group.items).length;
      next.push(...foldedItems(group.items).filter((item) => item.group && !item.others).map((item) => item.group));
    }
    level = next;
  }
  return open;
}

// Neighbours that are alike: the first as it is, then one item for the others.
function foldedItems(items) {
  const result = [];
  for (let at = 0; at < items.length; at += 1) {
    const item = items[at];
    result.push(item);
    const canFold = (each) => each?.group?.whole && each.group.like === item.group?.like && /^\d+$/.test(each.group.label);
    if (!canFold(item)) continue;
    let end = at + 1;
    while (canFold(items[end])) end += 1;
    if (end - at > 2) {
      const others = items.slice(at + 1, end).map((each) => each.group);
      result.push({ group: { key: `${item.group.key}+`, module: item.group.module, others, items: others.map((group) => ({ group })) }, others });
      at = end - 1;
    }
  }
  return result;
}

function flattened(root, open, found) {
  const items = [];
  const visit = (list, depth) => {
    for (const item of found === null ? foldedItems(list) : list) {
      if (item.node) {
        if (found === null || found.has(item.node.number)) items.push({ node: item.node, depth });
        continue;
      }
      const { group } = item;
      if (found !== null && !hasFound(group, found)) continue;
      items.push({ group, depth });
      const inside = item.others ? 0 : 1;
      if (found !== null || open.has(group.key)) {
        if (item.others) for (const each of item.others) {
          items.push({ group: each, depth });
          if (open.has(each.key)) visit(each.items, depth + 1);
        } else visit(group.items, depth + inside);
      }
    }
  };
  visit(root.items, 0);
  return items;
}

function hasFound(group, found) {
  return group.items.some((item) => (item.node ? found.has(item.node.number) : hasFound(item.group, found)));
}

// The keys of the groups around a node, those of folded neighbours included.
function keysAround(root, number) {
  const visit = (group) => {
    for (const item of group.items) {
      if (item.node?.number === number) return [group.key];
      const inside = item.group ? visit(item.group) : null;
      if (inside) {
        const fold = foldedItems(group.items).find((each) => each.others?.includes(item.group));
        return [group.key, ...(fold ? [fold.group.key] : []), ...inside];
      }
    }
    return null;
  };
  return visit(root) || [];
}

function groupRow(app, program, item, isOpen, toggle) {
  const { group } = item;
  const row = element("div", { class: `group-row ${group.others ? "more" : ""}`, ondblclick: () => toggle(item) });
  row.setAttribute("aria-level", item.depth + 1);
  row.setAttribute("aria-expanded", String(isOpen));
  const module = program.modules[group.module];
  const count = group.count ?? group.items.reduce((sum, each) => sum + each.group.count, 0);
  const label = group.others
    ? `${group.others[0].label} … ${group.others.at(-1).label} · ${group.others.length} more like it`
    : group.title ?? module.label;
  append(row, [
    indent(item.depth), chevron(true, isOpen, () => toggle(item)),
    element("span", { class: "module-label" }, label),
    !group.others && !group.title && element("span", { class: "class-name" }, module.class || (module.graph ? "graph" : "")),
    element("span", { class: "spacer" }),
    element("span", { class: "count" }, wholeNumber(count)),
  ]);
  return row;
}

function nodeRow(app, program, item) {
  const { node } = item;
  const row = element("div", { class: `node-row ${node.backward ? "backward" : ""}` });
  row.setAttribute("aria-level", item.depth + 1);
  append(row, [
    indent(item.depth), element("span", { class: `dot ${familyOf(node)}` }),
    element("span", { class: "node-name" }, node.target ?? node.name),
    node.kind === "call" && callText(app, program, node),
    element("span", { class: "spacer" }),
    node.kind !== "output" && sizeText(app, program, program.typeOf(node)),
  ]);
  return row;
}

// linear(gelu, p_weight): the names of nodes lead to them.
function callText(app, program, node) {
  const shown = node.arguments.map(([, value]) => argumentText(app, program, value, node));
  return element("span", { class: "call" }, element("span", { class: "operator" }, shortOperator(node.operator)),
    "(", shown.flatMap((value, position) => (position ? [", ", value] : [value])), ")");
}

// An argument of a call; user is the node that it is given to.
function argumentText(app, program, value, user) {
  if (Array.isArray(value)) {
    const items = value.map((item) => argumentText(app, program, item, user));
    return ["[", ...items.flatMap((item, position) => (position ? [", ", item] : [item])), "]"];
  }
  if (typeof value === "object" && value !== null) return nodeLink(app, program, value.node, user);
  return element("span", { class: "literal" }, value);
}

// A node by its name; a weight by its name in the model, from inside of the module that uses it.
function nodeLink(app, program, number, user) {
  const node = program.nodes[number];
  const around = user ? `${program.modules[user.module].name.split("@")[0]}.` : "";
  const name = node.target === undefined ? node.name : around !== "." && node.target.startsWith(around) ? node.target.slice(around.length) : node.target;
  const go = (event) => {
    event.stopPropagation();
    app.openNumber(program, number);
  };
  return element("span", { class: `reference ${familyOf(node)}`, onclick: go, title: program.typeOf(node) }, name);
}

// Curves between the row of the node that is selected and the rows of its inputs and users (or what they are inside of).
function drawArcs(program, rows, arcs, selected) {
  arcs.replaceChildren();
  if (selected?.kind !== "node" || selected.program !== program.number) return;
  const node = program.nodes[selected.number];
  const [first, last] = rows.range;
  const places = new Map();
  rows.items.forEach((item, position) => {
    if (item.node) places.set(item.node.number, position);
  });
  const at = places.get(node.number);
  if (at === undefined) return;
  const y = (position) => position * ROW + ROW / 2 - rows.root.scrollTop;
  const curve = (other, kind) => {
    const position = places.get(other);
    if (position === undefined) return;
    const visible = Math.max(at, position) >= first && Math.min(at, position) <= last;
    if (!visible) return;
    const depth = Math.min(40, 8 + Math.abs(at - position) * 3);
    arcs.append(shape("path", { d: `M 46 ${y(at)} C ${46 - depth} ${y(at)}, ${46 - depth} ${y(position)}, 46 ${y(position)}`, class: kind }));
    arcs.append(shape("circle", { cx: 46, cy: y(position), r: 3, class: kind }));
  };
  for (const input of new Set(node.inputs || [])) curve(input, "from");
  for (const user of new Set(node.users)) curve(user, "to");
}
