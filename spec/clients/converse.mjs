// What each client does with a server that asks: it answers for a form and for the model, watches progress, cancels a call, and hears that a list has
// changed. One JSON line per fact; the spec reads them.
import { setTimeout as sleep } from "node:timers/promises";
import { tell } from "./story.mjs";

const STEP_MS = 50; // between two looks at what has come
const PATIENCE = 60; // looks before a list is changed once more

const textOf = (result) => result.content.map((block) => block.text ?? "").join("");

export const capabilities = { elicitation: { form: {} }, sampling: {} };

// What the SDK calls when a person is to fill in a form.
export function fill({ params }) {
  tell("asked", { message: params.message, fields: Object.keys(params.requestedSchema.properties) });
  return { action: "accept", content: { name: "Ada" } };
}

// What the SDK calls when the client's model is to answer.
export function sample({ params }) {
  tell("sampled", { prompt: params.messages[0].content.text ?? params.messages[0].content[0].text });
  return { role: "assistant", model: "m", content: { type: "text", text: "hey there" } };
}

let changes = 0; // notifications that the list of resources has changed

export function changed() {
  changes++;
}

// `call(params, options)` is the SDK's callTool; `leave` says goodbye in the transport's way; `names`: the server's tools { elicit, sample, work, grow }.
export async function converse({ client, transport, call, leave, facts, names }) {
  let isQuiet = false; // from the cancelled call on: SDK 1.x reports aborted streams as errors, and asks for the rest of the cancelled call's
  // SDK 1.x takes an answer before a progress that comes with it, and then does not know the progress's token.
  const isLate = (error) => String(error).includes("progress notification for an unknown token");
  client.onerror = (error) => isQuiet || isLate(error) || tell("error", { message: String(error) });
  await client.connect(transport);
  tell("connected", facts());

  const { tools } = await client.listTools();
  tell("tools", { names: tools.map((tool) => tool.name) });

  const form = await call({ name: names.elicit, arguments: {} });
  tell("elicited", { text: textOf(form), isError: form.isError ?? false });
  const said = await call({ name: names.sample, arguments: { prompt: "hi", maxTokens: 5 } });
  tell("answered", { text: textOf(said), isError: said.isError ?? false });

  const worked = await call(
    { name: names.work, arguments: { duration: 0.6, steps: 3 } },
    { onprogress: ({ progress, total }) => tell("progress", { progress, total }) },
  );
  tell("worked", { text: textOf(worked) });

  isQuiet = true;
  const abort = new AbortController();
  const long = call({ name: names.work, arguments: { duration: 600, steps: 6000 } }, { signal: abort.signal, onprogress: () => abort.abort("enough") });
  await long.then(
    () => tell("finished"),
    () => tell("cancelled"),
  );

  for (let n = 1; names.grow; n++) { // without the name of such a tool nothing changes
    const before = changes;
    await call({ name: names.grow, arguments: { name: `note-${n}.gz`, data: "data:text/plain,hi", outputType: "resourceLink" } });
    for (let i = 0; i < PATIENCE && changes === before; i++) await sleep(STEP_MS);
    const { resources } = await client.listResources();
    if (changes > before && resources.some((resource) => resource.uri.endsWith(`note-${n}.gz`))) break;
  }
  tell("changed");

  await leave();
  tell("left");
}
