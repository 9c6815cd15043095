// What messages mean for a subscription (PROTOCOL.md, section 7): whom they concern, and how they change an answer.

/** A channel's spec. The only place that knows its form on the wire. */
export function readSpec(spec) {
  return {
    name: spec.name,
    kind: spec.kind,
    form: spec.form,
    dimensions: spec.dimensions ?? 0,
    partitioned: spec.partitioned ?? false,
    function: spec.function ?? 0,
    yType: spec.y_type ?? "",
    keyTypes: spec.key_types ?? [],
    rowNames: spec.row_names ?? [],
    rowTypes: spec.row_types ?? [],
  };
}

/**
 * Whether message `i` concerns the subscription at `point`: null if it does not, else which of the row's places, `old`
 * and `new`, are in the subscription's box. (Rectangles have no places: both are false.)
 */
export function concerned(spec, point, columns, i) {
  if (spec.form === "rectangles") return insideRectangle(spec, point, columns, i) ? { old: false, new: false } : null;
  const inside = { old: isPlaced(spec, point, columns, i, "old"), new: isPlaced(spec, point, columns, i, "new") };
  return inside.old || inside.new ? inside : null;
}

function insideRectangle(spec, [x1, x2, part], { il, ir, ol, or, part: parts }, i) {
  if (spec.partitioned && parts[i] !== part) return false;
  const left = (ol[i] < x1 || ol[i] === -Infinity) && x1 <= il[i];
  const right = ir[i] <= x2 && (x2 < or[i] || or[i] === Infinity);
  return left && right;
}

function isPlaced(spec, point, columns, i, side) {
  if (!columns[`${side}.there`][i]) return false;
  if (spec.partitioned && columns[`${side}.part`][i] !== point.at(-1)) return false;
  for (let d = 0; d < spec.dimensions; d += 1) {
    const place = columns[`${side}.${d}`][i];
    const last = d === spec.dimensions - 1;
    const upper = last ? (columns[`${side}.up`]?.[i] ?? place) : place;
    if (!(point[2 * d] <= place && upper <= point[2 * d + 1])) return false;
  }
  return true;
}

/** The answer of one subscription, from a snapshot of that one alone. */
export function newAnswer(spec, snapshot) {
  const Answer = {
    MIN: Extremum,
    MAX: Extremum,
    DISTINCT: Distinct,
    COUNT: Sum,
    SUM: Sum,
    AVG: Sum,
    SELECT: Rows,
    JOIN: Rows,
  };
  if (!(spec.kind in Answer)) throw new Error(`this client does not know subscriptions of kind ${spec.kind}`);
  return new Answer[spec.kind](spec, snapshot);
}

// Each answer has `value`, and `hear(columns, i, inside)`, which applies one message and says whether `value` changed.

class Extremum {
  constructor(spec, { best }) {
    this.spec = spec;
    this.best = best[0];
  }

  get value() {
    return Number.isFinite(this.best) ? fromCode(this.spec.yType, this.best) : null;
  }

  hear({ best }, i) {
    const before = this.best;
    this.best = best[i];
    return this.best !== before;
  }
}

class Distinct {
  constructor(spec, { value }) {
    this.spec = spec;
    this.values = new Set(value.map((code) => fromCode(spec.yType, code)));
  }

  get value() {
    return [...this.values];
  }

  hear({ appears, value }, i) {
    const one = fromCode(this.spec.yType, value[i]);
    if (appears[i]) this.values.add(one);
    else this.values.delete(one);
    return true;
  }
}

const [COUNT, SUM, EXACT_SUM, AVG] = [0, 1, 2, 3]; // a spec's function

/** COUNT, SUM and AVG: the number of rows, and their sum as high + low, so that rows may come and go without drift. */
class Sum {
  constructor(spec, { rows, high, low }) {
    this.function = spec.function;
    [this.rows, this.high, this.low] = [rows[0], high[0], low[0]];
  }

  get value() {
    if (this.function === COUNT) return this.rows;
    if (this.rows === 0) return null;
    if (this.function === AVG) return this.high / this.rows;
    return this.function === EXACT_SUM && this.low !== 0 ? BigInt(this.high) + BigInt(this.low) : this.high;
  }

  hear(columns, i, inside) {
    const before = this.value;
    if (inside.old) this.#add(-columns["old.y"][i], -1);
    if (inside.new) this.#add(columns["new.y"][i], 1);
    return this.value !== before;
  }

  #add(y, rows) {
    this.rows += rows;
    const [sum, error] = this.rows === 0 ? [0, 0] : twoSum(this.high, y);
    [this.high, this.low] = this.rows === 0 ? [0, 0] : twoSum(sum, error + this.low);
  }
}

/** a + b as the float nearest to it, and what that leaves out. */
function twoSum(a, b) {
  const sum = a + b;
  const fromB = sum - a;
  return [sum, a - (sum - fromB) + (b - fromB)];
}

/** The rows of a SELECT or JOIN, by key. */
class Rows {
  constructor(spec, snapshot) {
    this.spec = spec;
    this.rows = new Map();
    snapshot.of.forEach((_, i) => this.rows.set(this.#key(snapshot, i), this.#row(snapshot, i)));
  }

  get value() {
    return [...this.rows.values()];
  }

  hear(columns, i, inside) {
    const key = this.#key(columns, i);
    if (inside.new) this.rows.set(key, this.#row(columns, i));
    else this.rows.delete(key);
    return columns.altered[i] || inside.old !== inside.new;
  }

  #key(columns, i) {
    return JSON.stringify(this.spec.keyTypes.map((_, k) => columns[`key.${k}`][i]));
  }

  #row(columns, i) {
    return this.spec.rowTypes.map((type, k) => fromCode(type, columns[`row.${k}`][i]));
  }
}

/** A value from its number; a text is itself already. NULL is null, a TIMESTAMP its microseconds since 1970. */
function fromCode(type, code) {
  return type !== "TEXT" && Number.isNaN(code) ? null : code;
}
