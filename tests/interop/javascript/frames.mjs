// Payload frames (PROTOCOL.md, section 5) as bytes and as arrays, their type first. Requests and replies have fixed
// headers; of what a client sends and hears the others are MessagePack.

import { decode, encode } from "@msgpack/msgpack";

const REQUEST = "Q".charCodeAt(0);
const REPLY = "A".charCodeAt(0);
const REQUEST_BYTES = 21;
const REPLY_BYTES = 14;

/** The bytes of a frame. A client's request has no route and no origin: `["request", id, body]`. */
export function packFrame(frame) {
  if (frame[0] !== "request") return encode(frame);
  const [, id, body] = frame;
  const bytes = new Uint8Array(REQUEST_BYTES + body.length);
  const header = new DataView(bytes.buffer);
  header.setUint8(0, REQUEST); // then flags, links passed and the origin's bytes: all 0
  header.setBigUint64(5, BigInt(id), true); // then `after`: 0
  bytes.set(body, REQUEST_BYTES);
  return bytes;
}

/** The frame of bytes; a reply to a client has no route left: `["reply", id, installs, body]`. */
export function readFrame(bytes) {
  if (bytes[0] !== REPLY) return decode(bytes);
  const header = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const size = header.getUint32(2, true);
  const id = Number(header.getBigUint64(6, true));
  const begin = REPLY_BYTES + 4 * header.getUint8(1);
  const installs = size === 0 ? [] : decode(bytes.subarray(begin, begin + size));
  return ["reply", id, installs, bytes.subarray(begin + size)];
}
