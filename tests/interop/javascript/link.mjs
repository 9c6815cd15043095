// One link to a parent (PROTOCOL.md, section 3): reliable, ordered payloads over a ZeroMQ DEALER socket.
//
//   const link = await Link.dial("tcp://127.0.0.1:5701", "ann");
//   link.send(["sync"]);
//   for await (const frame of link) ...      // ends when the link does; `link.reason` says why
//
// Every link is a new session. To resume one after a short cut is a convenience of the protocol that this client does
// without: it subscribes again with its position (section 5.2, reset), which works at any gateway.

import { randomBytes } from "node:crypto";
import { decode, encode } from "@msgpack/msgpack";
import { Dealer } from "zeromq";
import { packFrame, readFrame } from "./frames.mjs";

const VERSION = 8;
const DATA = 1; // the first bytes of headers that are not MessagePack
const ACK = 2;
const NUMBERS_BYTES = 17; // that byte, and two numbers
const ACK_BYTES = 25; // and two more, which are a parent's to say
const MESSAGE_BYTES = 64 * 1024 * 1024;
const WELCOME_WITHIN_MS = 3000;
const NEVER_MS = 3_600_000;
const ACK_AFTER_PAYLOADS = 256;
const ACK_AFTER_BYTES = 256 * 1024;

export class Link {
  endpoint;
  reason = null;

  #socket = new Dealer({ linger: 0, reconnectInterval: NEVER_MS }); // a new connection is a new link, with its own hello
  #sending = Promise.resolve(); // a zeromq.js socket takes one send at a time
  #timers = [];
  #heartbeatMs = Infinity;
  #silenceMs = Infinity;
  #lastSpoke = 0;
  #lastHeard = 0;

  #sent = 0; // the last payload we numbered
  #kept = []; // payloads not acknowledged yet: [seq, bytes]
  #obeyedResendAt = -Infinity;

  #received = 0; // the last payload that came in order
  #unacknowledged = { payloads: 0, bytes: 0 };
  #askedResendAt = -Infinity;

  /** Connects, says hello and waits for welcome. */
  static async dial(endpoint, name) {
    const link = new Link();
    link.endpoint = endpoint;
    try {
      await link.#greet(name);
    } catch (error) {
      link.close(error.message);
      throw new Error(`no link to ${endpoint}: ${link.reason}`, { cause: error });
    }
    return link;
  }

  async #greet(name) {
    this.#socket.connect(this.endpoint);
    this.#socket.events.on("disconnect", () => this.close("the connection was cut"));
    const hello = {
      session: randomBytes(16),
      received: -1,
      role: "client",
      name,
      id: new Uint8Array(0),
      listen: null,
      message_bytes: MESSAGE_BYTES,
    };
    this.#post(encode([VERSION, "hello", hello]));
    this.#every(WELCOME_WITHIN_MS, () => this.close(`no welcome within ${WELCOME_WITHIN_MS / 1000} s`));
    const [version, kind, ...fields] = decode((await this.#socket.receive())[0]);
    this.#stopTimers();
    if (kind === "bye") throw new Error(`${fields[0]}: ${fields[1]}`);
    if (version !== VERSION || kind !== "welcome") throw new Error(`expected welcome, got ${kind}, version ${version}`);

    const [welcome] = fields;
    this.#lastHeard = performance.now();
    this.#keepPace(welcome.heartbeat_s * 1000, welcome.silence_s * 1000);
  }

  /** The parent says how often heartbeats come; more seldom, if it has many clients. */
  #keepPace(heartbeatMs, silenceMs) {
    if (heartbeatMs === 0 || (heartbeatMs === this.#heartbeatMs && silenceMs === this.#silenceMs)) return;
    this.#heartbeatMs = heartbeatMs;
    this.#silenceMs = silenceMs;
    this.#stopTimers();
    this.#every(heartbeatMs / 4, () => this.#beat());
  }

  /** Numbers a payload frame, keeps it until it is acknowledged, and sends it. */
  send(frame) {
    const payload = packFrame(frame);
    this.#sent += 1;
    this.#kept.push([this.#sent, payload]);
    this.#post(numbers(DATA, this.#sent, this.#received), payload);
  }

  /** The payload frames of the parent, each once and in order, until the link ends. */
  async *[Symbol.asyncIterator]() {
    try {
      for await (const [header, body] of this.#socket) {
        for (const payload of this.#hear(header, body)) yield readFrame(payload);
        if (this.reason !== null) return;
      }
    } catch (error) {
      if (this.reason === null) throw error;
    } finally {
      this.close("closed here");
    }
  }

  close(reason) {
    if (this.reason !== null) return;
    this.reason = reason;
    this.#stopTimers();
    this.#socket.close();
  }

  /** The payloads that a message brings. */
  #hear(header, body) {
    this.#lastHeard = performance.now();
    if (header[0] === DATA) {
      const [seq, ack] = readNumbers(header);
      this.#forgetUpTo(ack);
      return unbundle(header, body).filter((payload, place) => this.#isNext(seq + place, payload));
    }
    if (header[0] === ACK) {
      const [ack, sent] = readNumbers(header);
      this.#forgetUpTo(ack);
      this.#keepPace(...readPace(header));
      if (sent > this.#received) this.#askAgain();
      return [];
    }
    const [version, kind, ...fields] = decode(header);
    if (version !== VERSION) throw new Error(`the parent speaks version ${version}`);
    switch (kind) {
      case "resend":
        this.#sendAgain(fields[0]);
        return [];
      case "bye":
        this.close(`${fields[0]}: ${fields[1]}`);
        return [];
      default:
        throw new Error(`a link header of unknown kind ${kind}`);
    }
  }

  #isNext(seq, payload) {
    if (seq <= this.#received) return false; // had it
    if (seq > this.#received + 1) {
      this.#askAgain();
      return false;
    }
    this.#received = seq;
    this.#unacknowledged.payloads += 1;
    this.#unacknowledged.bytes += payload.length;
    const { payloads, bytes } = this.#unacknowledged;
    if (payloads >= ACK_AFTER_PAYLOADS || bytes >= ACK_AFTER_BYTES) this.#acknowledge();
    return true;
  }

  #acknowledge() {
    this.#post(numbers(ACK, this.#received, this.#sent, ACK_BYTES));
  }

  #forgetUpTo(ack) {
    while (this.#kept.length > 0 && this.#kept[0][0] <= ack) this.#kept.shift();
  }

  #askAgain() {
    const now = performance.now();
    if (now - this.#askedResendAt < this.#heartbeatMs) return;
    this.#askedResendAt = now;
    this.#post(encode([VERSION, "resend", this.#received + 1]));
  }

  #sendAgain(start) {
    const now = performance.now();
    if (now - this.#obeyedResendAt < this.#heartbeatMs) return;
    this.#obeyedResendAt = now;
    for (const [seq, payload] of this.#kept) {
      if (seq >= start) this.#post(numbers(DATA, seq, this.#received), payload);
    }
  }

  #beat() {
    const now = performance.now();
    if (now - this.#lastHeard > this.#silenceMs) this.close(`not heard for ${this.#silenceMs / 1000} s`);
    else if (now - this.#lastSpoke >= this.#heartbeatMs) this.#acknowledge();
  }

  /** Hands a message to ZeroMQ. Data and ACK both carry what we received, so both acknowledge it. */
  #post(header, payload) {
    this.#lastSpoke = performance.now();
    this.#unacknowledged = { payloads: 0, bytes: 0 };
    const parts = payload === undefined ? [header] : [header, payload];
    this.#sending = this.#sending
      .then(() => this.reason === null && this.#socket.send(parts))
      .catch((error) => this.close(error.message));
  }

  #every(ms, action) {
    this.#timers.push(setInterval(action, ms));
  }

  #stopTimers() {
    this.#timers.forEach(clearInterval);
    this.#timers = [];
  }
}

function numbers(kind, first, second, size = NUMBERS_BYTES) {
  const header = new DataView(new ArrayBuffer(size));
  header.setUint8(0, kind);
  header.setBigUint64(1, BigInt(first), true);
  header.setBigUint64(9, BigInt(second), true);
  return new Uint8Array(header.buffer);
}

function readNumbers(header) {
  const view = new DataView(header.buffer, header.byteOffset, header.byteLength);
  return [Number(view.getBigUint64(1, true)), Number(view.getBigUint64(9, true))];
}

function readPace(header) {
  const view = new DataView(header.buffer, header.byteOffset, header.byteLength);
  return [view.getUint32(NUMBERS_BYTES, true), view.getUint32(NUMBERS_BYTES + 4, true)];
}

/** The payloads of a data message: one, or as many as its header has lengths. */
function unbundle(header, body) {
  if (header.length === NUMBERS_BYTES) return [body];
  const view = new DataView(header.buffer, header.byteOffset, header.byteLength);
  const payloads = [];
  let end = 0;
  for (let at = NUMBERS_BYTES; at < header.length; at += 4) {
    const start = end;
    end += view.getUint32(at, true);
    payloads.push(body.subarray(start, end));
  }
  return payloads;
}
