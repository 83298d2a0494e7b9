// A user who orders: calls the tool `order`, is asked twice, and answers. With `--wait` each answer waits for a line on stdin.
import { createInterface } from "node:readline";
import { tell } from "./story.mjs";

const answers = { size: "M", colour: "teal" };

export const waits = process.argv.includes("--wait");
const lines = waits && createInterface({ input: process.stdin })[Symbol.asyncIterator]();

// What the SDK calls when the gateway asks.
export async function answer({ params }) {
  tell("asked", { message: params.message });
  if (waits) await lines.next();
  const content = {};
  for (const field of Object.keys(params.requestedSchema.properties)) content[field] = answers[field];
  return { action: "accept", content };
}

// `call(params)` is the SDK's callTool; `leave` says goodbye in the transport's way.
export async function order({ client, transport, call, leave, facts }) {
  let leaving = false; // from then on the SDK reports its own aborted streams as errors
  client.onerror = (error) => leaving || tell("error", { message: String(error) });
  await client.connect(transport);
  tell("connected", facts());
  const { content, isError } = await call({ name: "order", arguments: {} });
  tell("ordered", { text: content[0].text, isError: isError ?? false });
  leaving = true;
  await leave();
  tell("left");
  if (waits) process.stdin.destroy();
}
