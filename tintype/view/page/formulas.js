// Numbers and formulas as people read them.

const UNITS = ["", "k", "M", "G", "T", "P", "E"];

// 85524480 is 85.5 M
function shortNumber(value) {
  let rest = Number(value);
  let unit = 0;
  while (Math.abs(rest) >= 1000 && unit < UNITS.length - 1) {
    rest /= 1000;
    unit += 1;
  }
  const digits = unit === 0 ? String(rest) : rest.toPrecision(3).replace(/\.?0+$/, (zeros) => (zeros.includes(".") ? "" : zeros));
  return unit === 0 ? digits : `${Math.abs(rest) >= 1000 ? rest.toExponential(2) : digits} ${UNITS[unit]}`;
}

const shortBytes = (value) => (Number(value) < 1000 ? `${value} B` : `${shortNumber(value)}B`);
const wholeNumber = (value) => String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

// Text over sizes with each size as a button: `f32[batch, 2*seq]`, `14*batch + 2`.
function sizeText(app, program, text, { formula = false } = {}) {
  const pieces = [];
  const pattern = /\*\*(\d+)|[\p{L}_][\p{L}\p{N}_]*|\d+(?:\.\d+)?|\*|[^\p{L}\p{N}_*]+/gu;
  for (const [piece, power] of text.matchAll(pattern)) {
    if (power !== undefined) pieces.push(formula ? [...power].map((digit) => SUPERSCRIPTS[digit]).join("") : piece);
    else if (program.symbolsByName.has(piece)) pieces.push(dimButton(app, program, piece));
    else if (formula && piece === "*") pieces.push("·");
    else if (formula && /^\d{5,}$/.test(piece)) pieces.push(element("span", { title: wholeNumber(piece) }, shortNumber(piece)));
    else pieces.push(piece);
  }
  return element("span", { class: formula ? "formula" : "type" }, pieces);
}

function dimButton(app, program, name) {
  const hue = program.symbolsByName.get(name).position % 8;
  const open = (event) => {
    event.stopPropagation();
    app.select({ kind: "dim", program: program.number, name });
  };
  return element("button", { type: "button", class: `dim hue${hue}`, tabindex: -1, title: `the size ${name}: where it flows`, onclick: open }, name);
}

// A formula of the table: as text, and as a number for the sizes that are chosen.
function formulaText(app, program, number, { unit = "", bytes = false } = {}) {
  const formula = program.formulas[number];
  const value = evaluateOrNull(formula.value, app.symbolsOf(program));
  const short = value === null ? null : bytes ? shortBytes(value) : `${shortNumber(value)}${unit}`;
  if (typeof formula.value === "number") return element("span", { class: "formula", title: wholeNumber(formula.value) }, short);
  const exact = value === null ? "" : ` = ${wholeNumber(value)}`;
  return element("span", { class: "formula-pair" },
    sizeText(app, program, formula.text, { formula: true }),
    short !== null && element("span", { class: "at", title: `${formula.text}${exact}, for the sizes on the first page` }, `= ${short}`));
}
