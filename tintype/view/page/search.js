// The search: words, and words with a key: op:linear module:encoder.* dim:seq type:f16 name:add_* kind:parameter

const KEYS = {
  op: (program, node) => (node.operator ? [node.operator, shortOperator(node.operator), node.operator.split(".")[1] || ""] : []),
  module: (program, node) => modulePatterns(program, node),
  dim: (program, node) => program.dimsOf(node),
  type: (program, node) => [program.typeOf(node), program.typeOf(node).split("[")[0]],
  name: (program, node) => [node.name, node.target || ""],
  kind: (program, node) => [node.kind, ...(node.backward ? ["backward"] : [])],
};

// The module that a node is in and those around it, by path: module:encoder finds all that is inside of it.
function modulePatterns(program, node) {
  return program.chain(node.module).map((module) => module.name);
}

// The conditions of a query; each is a function of program and node. All must hold.
function parseQuery(text) {
  return (text.match(/\S+/g) || []).map((word) => {
    const [, key, rest] = word.match(/^([a-z]+):(.*)$/) || [];
    if (key !== undefined && Object.hasOwn(KEYS, key)) {
      if (!rest) return () => true; // still being typed
      const pattern = globPattern(rest, true);
      return (program, node) => KEYS[key](program, node).some((value) => pattern.test(value));
    }
    const pattern = globPattern(word, false);
    return (program, node) =>
      [node.name, node.operator || "", node.target || "", program.typeOf(node)].some((value) => pattern.test(value));
  });
}

// A pattern with * and ? as a regular expression; whole: it must be all of a text, else a part of it.
function globPattern(glob, whole) {
  const source = [...glob].map((c) => (c === "*" ? ".*" : c === "?" ? "." : c.replace(/[\\^$.|+()[\]{}]/g, "\\$&"))).join("");
  return new RegExp(whole ? `^(?:${source})$` : source, "iu");
}

// The numbers of the nodes that a query finds; null for an empty one.
function findNodes(program, query) {
  const conditions = parseQuery(query);
  if (conditions.length === 0) return null;
  const found = new Set();
  for (const node of program.nodes) if (conditions.every((holds) => holds(program, node))) found.add(node.number);
  return found;
}
