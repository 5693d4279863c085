// A program as the page works with it: the data, and what follows from them (who uses what, the tree, colours).

const FAMILIES = [
  ["matrix", /^(mm|bmm|addmm|baddbmm|matmul|linear|einsum|mv|dot|convolution|_convolution|conv\w*|\w*attention\w*|lstm|gru)$/],
  ["normalize", /(norm|softmax|softmin)/],
  ["reduce", /^(sum|mean|amax|amin|max|min|argmax|argmin|var\w*|std\w*|prod|all|any|cumsum|cumprod|logsumexp|\w*pool\w*|norm)$/],
  ["move", /^(view|reshape|permute|transpose|t|expand|slice|select|unsqueeze|squeeze|cat|stack|split\w*|chunk|clone|contiguous|to|_to_copy|flatten|unflatten|embedding|gather|index\w*|getitem|copy|detach|alias|unbind|repeat\w*|full\w*|zeros\w*|ones\w*|arange|empty\w*|scatter\w*|pad|constant_pad_nd|sym_\w+|\w*scatter|_unsafe_view|where|masked_fill|lift_fresh_copy|dropout)$/],
  ["control", /^(cond|while_loop|scan|map_impl|associative_scan|invoke_subgraph|_assert\w*|sym_constrain\w*)$/],
];

class Program {
  constructor(data, number) {
    Object.assign(this, data);
    this.number = number;
    this.nodes.forEach((node, position) => {
      node.number = position;
      node.users = [];
    });
    for (const node of this.nodes) for (const input of node.inputs || []) this.nodes[input].users.push(node.number);
    this.modules.forEach((module, position) => {
      module.number = position;
      module.children = [];
    });
    for (const module of this.modules) if (module.parent !== null) this.modules[module.parent].children.push(module);
    this.symbolsByName = new Map(this.symbols.map((symbol, position) => [symbol.name, { ...symbol, position }]));
    this.byNodeName = new Map(this.nodes.map((node) => [node.name, node]));
    this.calls = this.nodes.filter((node) => node.kind === "call");
    this.hasBackward = this.nodes.some((node) => node.backward);
  }

  typeOf(node) {
    return this.types[node.type].text;
  }

  // The names of the sizes that a node's value has.
  dimsOf(node) {
    const found = this.types[node.type].symbols || [];
    return found.map((symbol) => this.symbols.find((each) => each.symbol === symbol)?.name ?? symbol);
  }

  // The modules around a module, outermost first, without the model itself.
  chain(module) {
    const found = [];
    for (let at = this.modules[module]; at.parent !== null; at = this.modules[at.parent]) found.unshift(at);
    return found;
  }

  // The sizes of the example, for each input.
  exampleSizes() {
    const symbols = {};
    for (const symbol of this.symbols) if (symbol.example !== null) symbols[symbol.symbol] = BigInt(symbol.example);
    return this.contract.inputs.map((input) =>
      (input.sizes || []).map((size) => evaluateOrNull(size.value, symbols) ?? 2n),
    );
  }
}

// The operator's name as people say it: aten.linear.default is linear.
function shortOperator(operator) {
  const parts = operator.split(".");
  if (parts[0] === "aten" || parts[0] === "prims") return parts[1];
  if (parts[0] === "higher_order" || parts[0] === "operator" || parts[0] === "math") return parts[1];
  return parts.length === 3 && parts[2] === "default" ? `${parts[0]}.${parts[1]}` : operator;
}

function familyOf(node) {
  if (node.kind !== "call") return node.kind === "output" ? "output" : node.kind === "input" ? "input" : "weight";
  const name = shortOperator(node.operator).replace(/_$/, "").split(".").pop();
  const found = FAMILIES.find(([, pattern]) => pattern.test(name));
  return found ? found[0] : "element";
}
