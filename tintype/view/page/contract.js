// Whether a program takes inputs of given sizes: what a call checks, in the order in which it checks it.

// sizes[input][dimension] are BigInts. The result names every reason to refuse; conditions that only a run can
// decide are listed apart.
function checkSizes(contract, sizes) {
  const symbols = {};
  const problems = [];
  contract.inputs.forEach((input, position) => {
    (input.sizes || []).forEach((size, dimension) => {
      const place = input.kind === "tensor" ? `${input.name}.shape[${dimension}]` : input.name;
      const problem = checkSize(contract, place, size, sizes[position][dimension], symbols);
      if (problem) problems.push({ input: position, dimension, ...problem });
    });
  });
  const undecided = [];
  for (const line of contract.lines) {
    if (line.condition === undefined) continue;
    const holds = evaluateOrNull(line.condition, symbols);
    if (holds === null) undecided.push(line);
    else if (!holds) problems.push({ text: `the program needs ${line.text}`, line });
  }
  return { accepted: problems.length === 0, problems, undecided, symbols };
}

function checkSize(contract, place, size, actual, symbols) {
  const line = lineAbout(contract, place, size);
  if (size.symbols === undefined) {
    const expected = evaluate(size.value, {});
    return expected === actual ? null : { text: `${place} is ${expected} in this program, not ${actual}`, line };
  }
  const unknown = size.symbols.filter((symbol) => !Object.hasOwn(symbols, symbol));
  if (unknown.length === 0) {
    const expected = evaluate(size.value, symbols);
    if (expected !== actual) {
      return { text: `${place} is ${size.text}, which is ${expected} here, not ${actual}`, line };
    }
  }
  if (unknown.length === 1 && Object.hasOwn(size.linear, unknown[0])) {
    const [symbol] = unknown;
    const factor = BigInt(size.linear[symbol]);
    const rest = evaluate(size.value, { ...symbols, [symbol]: 0n });
    if ((actual - rest) % factor !== 0n) {
      return { text: `${place} is ${size.text}, which can't be ${actual}`, line };
    }
    symbols[symbol] = (actual - rest) / factor;
  }
  if (size.lower !== null && actual < BigInt(size.lower)) {
    return { text: `${place} = ${actual} is too small: ${size.text} is at least ${size.lower}`, line };
  }
  if (size.upper !== null && actual > BigInt(size.upper)) {
    return { text: `${place} = ${actual} is too large: ${size.text} is at most ${size.upper}`, line };
  }
  return null;
}

// The line of the contract that speaks of a size: of its place, or of the name that it has.
function lineAbout(contract, place, size) {
  const starts = (line) => line.text === place || line.text.startsWith(`${place} `);
  const ofPlace = contract.lines.filter(starts);
  const named = contract.lines.filter((line) => line.kind === "size" && words(line.text).includes(size.text));
  return ofPlace.find((line) => line.line) || named.find((line) => line.line) || ofPlace[0] || named[0] || null;
}

const words = (text) => text.match(/[\p{L}_][\p{L}\p{N}_]*/gu) || [];
