// Sizes and conditions, computed as Python computes them: integers without end (BigInt), floats as numbers.
// A symbol is a string, an integer a number, everything else [operation, ...arguments].

class Unknown extends Error {} // a symbol without a value, or an operation that the page does not know

const floorDivide = (a, b) => {
  if (b === 0n) throw new Unknown("a division by zero");
  const quotient = a / b;
  return a % b !== 0n && a < 0n !== b < 0n ? quotient - 1n : quotient;
};
const modulo = (a, b) => a - floorDivide(a, b) * b;
const floatModulo = (a, b) => a - Math.floor(a / b) * b;
const least = (...values) => values.reduce((a, b) => (b < a ? b : a));
const greatest = (...values) => values.reduce((a, b) => (b > a ? b : a));
const absolute = (value) => (value < 0 ? -value : value);

function roundHalfToEven(value) {
  const below = Math.floor(value);
  const rest = value - below;
  if (rest < 0.5) return below;
  return rest > 0.5 || below % 2 !== 0 ? below + 1 : below;
}

const OPERATIONS = {
  times: (a, b) => a * b,
  floordiv: floorDivide,
  mod: modulo,
  min: least,
  max: greatest,
  abs: absolute,
  pow: (base, exponent) => base ** exponent,
  bit_and: (a, b) => a & b,
  bit_or: (a, b) => a | b,
  bit_xor: (a, b) => a ^ b,
  bit_rshift: (a, b) => a >> b,
  eq: (difference) => difference === 0n,
  ne: (difference) => difference !== 0n,
  le: (difference) => difference <= 0n,
  not: (condition) => !condition,
  float_eq: (a, b) => Number(a) === Number(b),
  float_lt: (a, b) => Number(a) < Number(b),
  float_le: (a, b) => Number(a) <= Number(b),
  is_integer: (value) => Number.isInteger(Number(value)),
  to_float: Number,
  int_truediv: (a, b) => Number(a) / Number(b),
  float_add: (a, b) => Number(a) + Number(b),
  float_sub: (a, b) => Number(a) - Number(b),
  float_mul: (a, b) => Number(a) * Number(b),
  float_truediv: (a, b) => Number(a) / Number(b),
  float_floordiv: (a, b) => Math.floor(Number(a) / Number(b)),
  float_mod: (a, b) => floatModulo(Number(a), Number(b)),
  float_pow: (a, b) => Number(a) ** Number(b),
  float_neg: (value) => -value,
  float_abs: absolute,
  float_min: least,
  float_max: greatest,
  floor: (value) => BigInt(Math.floor(Number(value))),
  ceil: (value) => BigInt(Math.ceil(Number(value))),
  trunc: (value) => BigInt(Math.trunc(Number(value))),
  round: (value) => BigInt(roundHalfToEven(Number(value))),
};
for (const name of ["sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "exp", "log", "log2"]) {
  OPERATIONS[name] = (value) => Math[name](Number(value));
}

// The value of an expression; symbols is an object of BigInts by name. Throws Unknown.
function evaluate(expression, symbols) {
  if (typeof expression === "number") return BigInt(expression);
  if (typeof expression === "boolean") return expression;
  if (typeof expression === "string") {
    if (!Object.hasOwn(symbols, expression)) throw new Unknown(`${expression} is not known`);
    return symbols[expression];
  }
  const [operation, ...parts] = expression;
  const value = (part) => evaluate(part, symbols);
  if (operation === "int") return BigInt(parts[0]);
  if (operation === "float") return parts[0] === "inf" ? Infinity : parts[0] === "-inf" ? -Infinity : Number(parts[0]);
  if (operation === "sum") {
    return parts.slice(1).reduce((sum, [count, part]) => sum + value(count) * value(part), value(parts[0]));
  }
  if (operation === "product") return parts.reduce((product, part) => product * value(part), 1n);
  if (operation === "choose") return value(value(parts[0]) ? parts[1] : parts[2]);
  if (operation === "and") return parts.every((part) => value(part));
  if (operation === "or") return parts.some((part) => value(part));
  if (!Object.hasOwn(OPERATIONS, operation)) throw new Unknown(`${operation} is not known`);
  try {
    return OPERATIONS[operation](...parts.map(value));
  } catch (error) {
    if (error instanceof RangeError) throw new Unknown(error.message);
    throw error;
  }
}

// The same, or null where it can't be computed.
function evaluateOrNull(expression, symbols) {
  try {
    return evaluate(expression, symbols);
  } catch (error) {
    if (error instanceof Unknown) return null;
    throw error;
  }
}
