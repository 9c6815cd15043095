// Columns (PROTOCOL.md, section 4) as plain JavaScript arrays, and the numbers inside them as values.

import { endianness } from "node:os";

if (endianness() !== "LE")
  throw new Error("this client reads columns as typed arrays, which needs a little-endian machine");

/** The array that `bytes` hold. They are copied: a typed array must start at a multiple of its item size. */
function items(TypedArray, bytes) {
  return new TypedArray(new Uint8Array(bytes).buffer);
}

const readers = {
  f8: (bytes) => Array.from(items(Float64Array, bytes)),
  i8: (bytes) => Array.from(items(BigInt64Array, bytes), Number),
  b1: (bytes) => Array.from(bytes, Boolean),
  t4: (bytes, words) => Array.from(items(Int32Array, bytes), (place) => (place < 0 ? null : words[place])),
};

/** One column: `["f8", bytes]`, `["t4", bytes, words]`, ... */
export function readColumn([type, ...fields]) {
  return readers[type](...fields);
}

/** A map from name to column. */
export function readColumns(columns) {
  return Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, readColumn(column)]));
}

/** The messages of one channel in a deliver or a replay: `[channel, columns]`, or two blocks for MIN and MAX. */
export function readMessages([channel, ...rest]) {
  if (rest.length === 1) return { channel, columns: readColumns(rest[0]) };
  const seq = readers.i8(rest[0]);
  const numbers = readers.f8(rest[1]);
  const names = ["il", "ir", "ol", "or", "best", "part"].slice(0, numbers.length / seq.length);
  const blocks = names.map((name, k) => [name, numbers.slice(k * seq.length, (k + 1) * seq.length)]);
  return { channel, columns: { seq, ...Object.fromEntries(blocks) } };
}

/** A matrix `[n, k, bytes]`: n points of k numbers. */
export function readMatrix([n, k, bytes]) {
  const numbers = readers.f8(bytes);
  return Array.from({ length: n }, (_, i) => numbers.slice(i * k, (i + 1) * k));
}
