// The first page: what the program takes. Sizes can be typed in; the answer is what a call would say.

function contractView(app, program) {
  const root = element("div", { class: "scroll contract" });
  const verdict = element("div", { class: "verdict", role: "status", "aria-live": "polite" });
  const lines = element("div", { class: "lines" });
  const results = element("div", { class: "results" });
  const cards = element("div", { class: "cards" });
  const update = () => {
    const answer = app.answerOf(program);
    showVerdict(app, program, verdict, answer);
    showLines(app, program, lines, answer);
    showResults(app, program, results);
    replaceContent(cards, summaryCards(app, program));
    for (const box of root.querySelectorAll("input.size")) {
      const wrong = answer.problems.some((p) => String(p.input) === box.dataset.input && String(p.dimension) === box.dataset.dimension);
      box.classList.toggle("wrong", wrong);
      box.setAttribute("aria-invalid", String(wrong));
    }
  };
  append(root, [
    cards,
    element("section", {}, element("h2", {}, "Will it take these inputs?"),
      element("p", { class: "hint" }, "Change any size. The answer is the one that a call of the program gives."),
      element("div", { class: "inputs" }, program.contract.inputs.map((input, position) => inputRow(app, program, input, position, update))),
      verdict,
      program.symbols.length > 0 && button("Sizes of the example", () => {
        app.sizes[program.number] = program.exampleSizes();
        app.show("contract");
      }, { class: "quiet" })),
    element("div", { class: "columns" },
      element("section", {}, element("h2", {}, "What it asks"), lines),
      element("section", {}, element("h2", {}, "What it gives"), results)),
  ]);
  update();
  return root;
}

function summaryCards(app, program) {
  const model = program.modules[0];
  const missing = model.without_formula;
  return [
    card("operator calls", wholeNumber(model.calls), `${program.stage} stage`),
    card("parameters and buffers", shortNumber(model.parameters), `${shortBytes(model.bytes)} of weights`),
    element("div", { class: "card wide" },
      element("div", { class: "card-title" }, "operations"),
      element("div", { class: "card-value" }, formulaText(app, program, model.operations)),
      element("div", { class: "card-note" }, "a multiplication with an addition is two",
        missing > 0 && element("span", { class: "warn" }, ` · ${missing} calls have no formula and are not counted`))),
  ];
}

const card = (title, value, note) =>
  element("div", { class: "card" },
    element("div", { class: "card-title" }, title),
    element("div", { class: "card-value" }, value),
    element("div", { class: "card-note" }, note));

function inputRow(app, program, input, position, update) {
  const name = element("code", { class: "input-name" }, input.name);
  if (input.kind === "value") {
    return element("div", { class: "input-row" }, name, element("span", { class: "fixed-value" }, `is ${input.value}, always`));
  }
  const boxes = input.sizes.map((size, dimension) => sizeBox(app, program, size, position, dimension, update));
  const isTensor = input.kind === "tensor";
  return element("div", { class: "input-row" }, name, element("span", { class: "dtype" }, input.dtype),
    isTensor && element("span", { class: "bracket" }, "["), boxes, isTensor && element("span", { class: "bracket" }, "]"));
}

function sizeBox(app, program, size, position, dimension, update) {
  const box = element("input", {
    class: `size${size.symbols ? " varies" : ""}`, inputmode: "numeric", spellcheck: "false", autocomplete: "off",
    "aria-label": `size ${dimension} of ${program.contract.inputs[position].name}`,
    "data-input": position, "data-dimension": dimension,
    oninput: () => {
      const text = box.value.replace(/[\s_,]/g, "");
      const isNumber = /^-?\d{1,18}$/.test(text);
      box.classList.toggle("unreadable", !isNumber);
      if (!isNumber) return;
      app.setSize(program, position, dimension, BigInt(text));
      for (const other of document.querySelectorAll("input.size")) {
        if (other !== box) other.value = String(app.sizes[program.number][other.dataset.input][other.dataset.dimension]);
      }
      update();
    },
  });
  box.value = String(app.sizes[program.number][position][dimension]);
  box.size = Math.max(4, box.value.length);
  const label = size.symbols ? sizeText(app, program, size.text) : "fixed";
  return element("label", { class: "size-box" }, box, element("span", { class: "size-name" }, label));
}

function showVerdict(app, program, verdict, answer) {
  verdict.className = `verdict ${answer.accepted ? "accepted" : "refused"}`;
  const values = program.symbols.filter((symbol) => Object.hasOwn(answer.symbols, symbol.symbol))
    .map((symbol) => [dimButton(app, program, symbol.name), ` = ${wholeNumber(answer.symbols[symbol.symbol])}`]);
  if (answer.accepted) {
    replaceContent(verdict, element("strong", {}, "Accepted"),
      element("span", { class: "values" }, values.flatMap((pair, position) => (position ? [",  ", pair] : pair))),
      answer.undecided.length > 0 && element("div", { class: "note" },
        `${answer.undecided.length} condition${answer.undecided.length > 1 ? "s" : ""} below can only be checked in a run: the data decide.`));
    return;
  }
  replaceContent(verdict, element("strong", {}, "Refused"),
    element("ul", {}, answer.problems.map((problem) => element("li", {}, problem.text, lineOf(problem.line)))));
}

// The line of the user's program that a condition comes from, where the page has it.
function lineOf(line) {
  if (!line?.line) return null;
  return element("div", { class: "source" },
    element("code", {}, line.line.text || "(no text)"),
    element("span", { class: "where" }, `${line.line.file}:${line.line.line} in ${line.line.function}`));
}

const KIND_NAMES = {
  size: "size", relation: "relation", specialization: "fixed", assertion: "checked", observation: "rests on", "control flow": "decides",
};

function showLines(app, program, parent, answer) {
  const broken = new Set(answer.problems.map((problem) => problem.line));
  if (program.contract.lines.length === 0) {
    replaceContent(parent, element("p", { class: "hint" }, "All sizes are those of the example inputs."));
    return;
  }
  replaceContent(parent, program.contract.lines.map((line) =>
    element("div", { class: `line ${broken.has(line) ? "broken" : ""}` },
      element("span", { class: `badge ${line.kind.replace(" ", "-")}` }, KIND_NAMES[line.kind] || line.kind),
      element("div", { class: "line-text" }, sizeText(app, program, line.text), lineOf(line)))));
}

const OUTPUT_NAMES = {
  user_output: "result", loss_output: "loss", buffer_mutation: "new value of buffer", parameter_mutation: "new value of parameter",
  user_input_mutation: "written to input", gradient_to_parameter: "gradient of", gradient_to_user_input: "gradient of input", token: "token",
};

function showResults(app, program, parent) {
  const symbols = app.symbolsOf(program);
  const shown = program.contract.outputs.slice(0, 200);
  replaceContent(parent, shown.map((output) => {
    const sizes = (output.sizes || []).map((size) => evaluateOrNull(size, symbols));
    const known = output.sizes?.some((size) => typeof size !== "number") && sizes.every((size) => size !== null);
    return element("div", { class: "line" },
      element("span", { class: "badge" }, OUTPUT_NAMES[output.kind] || output.kind),
      element("div", { class: "line-text" },
        element("button", { type: "button", class: "link", onclick: () => app.openNode(program, output.name) }, output.place || output.name || "(the result)"),
        " ", sizeText(app, program, output.type),
        known && element("span", { class: "at" }, ` = [${sizes.join(", ")}]`)));
  }), program.contract.outputs.length > shown.length && element("p", { class: "hint" }, `and ${program.contract.outputs.length - shown.length} more`));
}
