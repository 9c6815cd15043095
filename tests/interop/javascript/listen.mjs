// Subscribes, and tells on standard output what it hears: the program that tests/interop/test_javascript.py runs.
//
//   node listen.mjs ENDPOINT[,ENDPOINT...] [NAME SQL JSON-PARAMETERS]...
//
// Every line it writes is a JSON object with `event`: linked (endpoint), opened (name, value), changed (name, seq,
// value), resync (name, seq, value), synced (seq). A line `sync` on standard input asks for the last; at its end the
// program ends.

import { createInterface } from "node:readline";
import { Client } from "./client.mjs";

const [endpoints, ...asked] = process.argv.slice(2);
const tell = (event, fields) => process.stdout.write(`${JSON.stringify({ event, ...fields })}\n`);

const client = new Client(endpoints.split(","));
client.onLink = (endpoint) => tell("linked", { endpoint });
client.ended.catch((error) => {
  console.error(error);
  process.exit(1);
});

for (let i = 0; i < asked.length; i += 3) {
  const [name, sql, parameters] = asked.slice(i, i + 3);
  const subscription = await client.subscribe(sql, JSON.parse(parameters));
  tell("opened", { name, value: subscription.value });
  subscription.onChange = (seq) => tell("changed", { name, seq, value: subscription.value });
  subscription.onResync = (seq) => tell("resync", { name, seq, value: subscription.value });
}

for await (const line of createInterface({ input: process.stdin })) {
  if (line === "sync") client.sync().then((seq) => tell("synced", { seq }));
}
client.close();
