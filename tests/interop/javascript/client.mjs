// A Hullcast client: subscriptions that stay right while gateways come and go (PROTOCOL.md, sections 5 and 6).
//
//   const client = new Client(["tcp://127.0.0.1:5701", "tcp://127.0.0.1:5702"], "ann");
//   const cheapest = await client.subscribe("SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?", [2, 5]);
//   cheapest.onChange = (seq) => console.log(seq, cheapest.value);
//
// README.md says what it leaves out.

import { setTimeout as wait } from "node:timers/promises";
import { decode, encode } from "@msgpack/msgpack";
import { concerned, newAnswer, readSpec } from "./answers.mjs";
import { readColumns, readMatrix, readMessages } from "./columns.mjs";
import { Link } from "./link.mjs";

const RETRY_MS = 100;
const TRY_AGAIN = new Set(["Unavailable", "ConnectionLost", "TimedOut", "Overloaded"]);

/** A refusal of the server: its code (PROTOCOL.md, section 8) and arguments. */
export class HullcastError extends Error {
  constructor(code, args) {
    super(`${code}: ${args.join(", ")}`);
    this.code = code;
  }
}

/** One subscription, alone in its group: where it listens, and its answer. */
class Subscription {
  onChange = () => {}; // called with the sequence number of the update that changed `value`
  onResync = () => {}; // called with a sequence number when what was missed is not known, only the answer now
  channel = 0;

  #spec = null;
  #point = null;
  #answer = null;
  #asOf = -1; // the last update in the answer

  constructor(group, sql, parameters) {
    Object.assign(this, { group, sql, parameters });
  }

  /** The answer, as a JavaScript value. */
  get value() {
    return this.#answer.value;
  }

  /** This subscription in a subscribe request. */
  get asked() {
    return [this.group, this.sql, this.parameters, 1, this.channel, null, null];
  }

  /** The server has it: at this point of that channel, with an answer as of `seq`, or the one it has already. */
  open(channel, spec, point, snapshot, seq) {
    this.channel = channel;
    this.#spec = spec;
    this.#point = point;
    if (snapshot === null) return;
    const again = this.#answer !== null;
    this.#answer = newAnswer(spec, snapshot);
    this.#asOf = seq;
    if (again) this.onResync(seq);
  }

  /** Applies the messages of one frame. An update may have several, but all in one frame: so none comes twice. */
  hear(columns) {
    const seen = this.#asOf;
    let changed = false;
    columns.seq.forEach((seq, i) => {
      const inside = concerned(this.#spec, this.#point, columns, i);
      if (inside !== null) {
        if (seq <= seen) throw new Error(`update ${seq} came again to ${this.sql}, which is as of ${seen}`);
        this.#asOf = seq;
        changed = this.#answer.hear(columns, i, inside) || changed;
      }
      if (changed && columns.seq[i + 1] !== seq) {
        this.onChange(seq);
        changed = false;
      }
    });
  }
}

export class Client {
  onLink = () => {}; // called with the endpoint whenever a link was made

  #name;
  #given;
  #directory = []; // further endpoints, from the latest directory frame
  #link = null;
  #closed = false;
  #running;

  #requests = 0; // their latest id
  #groups = 0; // their latest number
  #pending = new Map(); // request id -> { body, apply, resolve, reject }
  #resuming = null; // the id of the subscribe that brings back all subscriptions, until it is answered
  #subscriptions = new Map(); // by group; those that are open
  #position = 0; // we have heard all updates up to it that concern us ..
  #epoch = null; // .. of this life of the server

  constructor(endpoints, name = "javascript") {
    this.#given = endpoints;
    this.#name = name;
    this.#running = this.#run();
  }

  /** Settles when the client ends: after `close`, or with the error that ended it. */
  get ended() {
    return this.#running;
  }

  close() {
    this.#closed = true;
    this.#link?.close("closed here");
  }

  subscribe(sql, parameters = []) {
    this.#groups += 1;
    const subscription = new Subscription(this.#groups, sql, parameters);
    return this.#request(["subscribe", [subscription.asked], null, null, null], (reply, installs) => {
      this.#subscribed(reply, installs, new Map([[subscription.group, subscription]]), null);
      return subscription;
    });
  }

  /** The sequence number up to which everything was heard; it includes all that was applied before this call. */
  sync() {
    return this.#request(["sync"], ([, seq]) => {
      this.#advance(seq);
      return seq;
    });
  }

  // ---- the link ----

  async #run() {
    for (let turn = 0; !this.#closed; turn += 1) {
      const ways = [...new Set([...this.#given, ...this.#directory])];
      try {
        this.#link = await Link.dial(ways[turn % ways.length], this.#name);
      } catch {
        await wait(RETRY_MS); // then the next one
        continue;
      }
      if (this.#closed) break;
      this.onLink(this.#link.endpoint);
      this.#beginAgain();
      for await (const frame of this.#link) this.#hear(frame);
      this.#link = null;
    }
    this.#link?.close("closed here");
  }

  #hear([kind, ...fields]) {
    switch (kind) {
      case "reply": {
        const [id, installs, body] = fields;
        this.#replied(id, decode(body), installs);
        break;
      }
      case "deliver": {
        const [through, channels] = fields;
        this.#deliver(channels);
        this.#advance(through);
        break;
      }
      case "progress":
        this.#advance(fields[0]);
        break;
      case "reset":
        this.#beginAgain();
        break;
      case "directory":
        this.#directory = fields[2].map(([, , endpoint]) => endpoint);
        break;
      default:
        throw new Error(`a frame of unknown kind ${kind}`);
    }
  }

  #deliver(channels) {
    if (this.#resuming !== null) return; // the reply brings all that came since our position
    for (const { channel, columns } of channels.map(readMessages)) {
      for (const subscription of this.#subscriptions.values()) {
        if (subscription.channel === channel) subscription.hear(columns);
      }
    }
  }

  #advance(through) {
    if (this.#resuming === null) this.#position = Math.max(this.#position, through);
  }

  // ---- requests ----

  /** Asks the server; `apply` takes the reply before any later frame is heard, and says what the caller gets. */
  #request(body, apply) {
    return new Promise((resolve, reject) => {
      this.#requests += 1;
      this.#pending.set(this.#requests, { body, apply, resolve, reject });
      this.#ask(this.#requests);
    });
  }

  /** Sends a request, unless it has to wait: for a link, or until the subscriptions are back. */
  #ask(id) {
    if (this.#link === null || (this.#resuming !== null && this.#resuming !== id)) return;
    this.#link.send(["request", id, encode(this.#pending.get(id).body)]);
  }

  #replied(id, reply, installs) {
    const request = this.#pending.get(id);
    if (request === undefined) return; // to what was asked before the way was lost, and has been asked again
    const [kind, code, args] = reply;
    if (kind === "failed" && TRY_AGAIN.has(code)) {
      setTimeout(() => this.#pending.has(id) && this.#ask(id), RETRY_MS);
      return;
    }
    this.#pending.delete(id);
    if (kind === "failed") request.reject(new HullcastError(code, args));
    else request.resolve(request.apply(reply, installs));
  }

  /** The way to the server is new: bring back all subscriptions from our position, then ask what was not answered. */
  #beginAgain() {
    this.#pending.delete(this.#resuming);
    this.#resuming = null;
    const unanswered = [...this.#pending.entries()];
    this.#pending.clear();
    for (const [, request] of unanswered) {
      this.#requests += 1; // a new id, so that a late reply to the old one is nobody's
      this.#pending.set(this.#requests, request);
    }
    if (this.#subscriptions.size === 0) this.#askAll();
    else this.#resume();
  }

  #askAll() {
    for (const id of this.#pending.keys()) this.#ask(id);
  }

  #resume() {
    const since = this.#position;
    const groups = [...this.#subscriptions.values()].map((subscription) => subscription.asked);
    const apply = (reply, installs) => {
      this.#resuming = null;
      this.#subscribed(reply, installs, this.#subscriptions, since);
      this.#askAll();
    };
    const reject = (error) => {
      throw error; // the client ends with it
    };
    this.#requests += 1;
    this.#resuming = this.#requests;
    this.#pending.set(this.#resuming, {
      body: ["subscribe", groups, since, this.#epoch, null],
      apply,
      resolve() {},
      reject,
    });
    this.#ask(this.#resuming);
  }

  #subscribed([kind, seq, epoch, opened, channels, replay], installs, subscriptions, since) {
    if (kind !== "subscribed") throw new Error(`this client does not know ${kind} as an answer to subscribe`);
    const specs = new Map(channels.map(([channel, spec]) => [channel, readSpec(spec)]));
    const missed = new Map(replay.map(readMessages).map(({ channel, columns }) => [channel, columns]));
    const points = new Map(installs.map(([group, , , , matrix]) => [group, readMatrix(matrix)]));
    for (const [group, channel, , snapshot, failed, runs] of opened) {
      if (failed !== null) throw new HullcastError(...failed);
      const subscription = subscriptions.get(group);
      const asOf = runs.length > 0 ? runs[0][1] : seq;
      const columns = snapshot === null ? null : readColumns(snapshot);
      subscription.open(channel, specs.get(channel), points.get(group)[0], columns, asOf);
      if (missed.has(channel)) subscription.hear(after(columns === null ? since : asOf, missed.get(channel)));
      this.#subscriptions.set(group, subscription);
    }
    const sameLife = this.#epoch !== null && Buffer.compare(epoch, this.#epoch) === 0;
    this.#position = sameLife ? Math.max(this.#position, seq) : seq;
    this.#epoch = epoch;
  }
}

/** The messages of updates after `seq`. */
function after(seq, columns) {
  const later = columns.seq.map((one) => one > seq);
  const kept = ([name, column]) => [name, column.filter((_, i) => later[i])];
  return Object.fromEntries(Object.entries(columns).map(kept));
}
