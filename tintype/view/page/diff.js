// Two lists of nodes side by side: rows of [left, right], either of which may be missing.

// The nodes of a later stage beside those they were made of. Linked means: a node names the left node, with its operator.
function alignByOrigin(left, right) {
  const owners = new Map(left.nodes.map((node) => [node.number, []]));
  const orphans = [];
  for (const node of right.nodes) {
    if (node.kind !== "call") continue;
    const owner = (node.from || [])
      .map(([name, target]) => left.program.byNodeName.get(name)?.operator === target && left.program.byNodeName.get(name))
      .find((found) => found && owners.has(found.number));
    if (owner) owners.get(owner.number).push(node);
    else orphans.push(node);
  }
  return interleave(left.nodes, owners, orphans);
}

// What goes backward beside the step of the forward half whose gradient it computes.
function alignByStep(forward, backward) {
  const owners = new Map(forward.map((node) => [node.number, []]));
  const first = new Map();
  for (const node of forward) if (node.step !== undefined && !first.has(node.step)) first.set(node.step, node);
  const orphans = [];
  for (const node of backward) {
    const owner = node.step === undefined ? undefined : first.get(node.step);
    if (owner) owners.get(owner.number).push(node);
    else orphans.push(node);
  }
  return interleave(forward, owners, orphans);
}

function interleave(left, owners, orphans) {
  const rows = [];
  for (const node of left) {
    const made = owners.get(node.number);
    if (made.length === 0) rows.push({ left: node, right: null });
    made.forEach((each, position) => rows.push({ left: position === 0 ? node : null, right: each, of: node }));
  }
  for (const node of orphans) rows.push({ left: null, right: node });
  return rows;
}

// Two programs: in each module, the calls of an operator are matched in their order.
function alignByStructure(left, right) {
  const key = (program, node) => `${program.modules[node.module].name}\u0000${node.operator ?? node.kind}`;
  const waiting = new Map();
  for (const node of right.nodes) {
    const name = key(right.program, node);
    if (!waiting.has(name)) waiting.set(name, []);
    waiting.get(name).push(node);
  }
  const partner = new Map();
  for (const node of left.nodes) {
    const found = waiting.get(key(left.program, node))?.shift();
    if (found) partner.set(found.number, node);
  }
  return merge(left, right, partner);
}

// Both lists in their own order as far as partners allow: first what is on the right only, up to the next partner.
function merge(left, right, partner) {
  const rows = [];
  const done = new Set();
  const matched = new Map([...partner].map(([theirs, ours]) => [ours.number, right.program.nodes[theirs]]));
  let next = 0;
  const passRightOnly = () => {
    for (; next < right.nodes.length; next += 1) {
      const node = right.nodes[next];
      if (done.has(node.number)) continue;
      if (partner.has(node.number)) return; // its row comes with its partner
      rows.push({ left: null, right: node, change: "added" });
    }
  };
  for (const node of left.nodes) {
    const other = matched.get(node.number) || null;
    if (other) {
      passRightOnly();
      done.add(other.number);
    }
    rows.push({ left: node, right: other, change: other ? changeOf(left.program, node, right.program, other) : "removed" });
  }
  passRightOnly();
  return withReplacements(left.program, right.program, rows);
}

// A call that is gone and a new one in its place, in the same module and with the same value, are one row.
function withReplacements(one, other, rows) {
  const result = [];
  for (const row of rows) {
    const last = result.at(-1);
    const replaces = row.change === "added" && last?.change === "removed"
      && one.modules[last.left.module].name === other.modules[row.right.module].name && one.typeOf(last.left) === other.typeOf(row.right);
    if (replaces) result[result.length - 1] = { left: last.left, right: row.right, change: "changed" };
    else result.push(row);
  }
  return result;
}

// What is different in two calls of one operator: the value, or what they are given besides tensors.
function changeOf(one, node, other, partner) {
  if (one.typeOf(node) !== other.typeOf(partner)) return "changed";
  const literals = (each) => JSON.stringify((each.arguments || []).map(([name, value]) => [name, withoutNodes(value)]));
  return literals(node) === literals(partner) ? "same" : "changed";
}

function withoutNodes(value) {
  if (Array.isArray(value)) return value.map(withoutNodes);
  return typeof value === "object" && value !== null ? "·" : value;
}

// What two tables of names have in common and what not: rows of [name, value of one, value of the other].
function changedEntries(one, other) {
  const names = [...new Set([...Object.keys(one), ...Object.keys(other)])];
  return names.filter((name) => one[name] !== other[name]).map((name) => [name, one[name], other[name]]);
}
