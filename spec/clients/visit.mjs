// A client made with the official TypeScript SDK 1.x or 2.x:  node visit.mjs 1|2 PREFIX stdio COMMAND…, or PREFIX sse or http URL
// It tries what a server of spec/upstreams has, whose tools and prompts have PREFIX before their names, and prints a line for each check: `ok NAME`,
// or `not NAME: WHY`. With MODE=legacy in the environment version 2.x begins with `initialize`. CHECKS has the
// names of those to try, with commas between them, SECONDS the time that each may take.
const [version, prefix, kind, where, ...args] = process.argv.slice(2);
const isOld = version === "1";
const sdk = isOld ? "@modelcontextprotocol/sdk/client" : "@modelcontextprotocol/client";
const patience = 1000 * (process.env.SECONDS ?? 8);
const heard = new Set();
let answer = "accept";
let changed = () => {};

const load = async (path) => import(isOld ? `${sdk}/${path}.js` : path === "stdio" ? `${sdk}/stdio` : sdk);
const { Client } = await load("index");

async function transport() {
  if (kind === "stdio") return new (await load("stdio")).StdioClientTransport({ command: where, args });
  if (kind === "sse") return new (await load("sse")).SSEClientTransport(new URL(where));
  return new (await load("streamableHttp")).StreamableHTTPClientTransport(new URL(where));
}

const capabilities = { elicitation: { form: {} }, sampling: {}, roots: { listChanged: true } };
const client = new Client({ name: "visit", version: "1" }, isOld ? { capabilities } : {
  capabilities, versionNegotiation: { mode: process.env.MODE ?? "auto" },
  listChanged: { tools: { autoRefresh: false, debounceMs: 0, onChanged: () => changed() } },
});

async function handle(method, schema, run) {
  const types = isOld && (await import("@modelcontextprotocol/sdk/types.js"));
  const key = isOld ? types[schema] : method;
  if (method.startsWith("notifications/")) client.setNotificationHandler(key, run);
  else client.setRequestHandler(key, run);
}

await handle("elicitation/create", "ElicitRequestSchema", () => ({ action: answer, ...(answer === "accept" && { content: { name: "you" } }) }));
await handle("sampling/createMessage", "CreateMessageRequestSchema", (request) => {
  const content = [request.params.messages[0].content].flat()[0];
  return { role: "assistant", model: "m", content: { type: "text", text: `from ${content.text}` } };
});
await handle("roots/list", "ListRootsRequestSchema", () => ({ roots: [{ uri: "file:///home" }] }));
await handle("notifications/message", "LoggingMessageNotificationSchema", (message) => { heard.add(`log ${message.params.data}`); });
await handle("notifications/resources/updated", "ResourceUpdatedNotificationSchema", (message) => { heard.add(`updated ${message.params.uri}`); });
if (isOld) await handle("notifications/tools/list_changed", "ToolListChangedNotificationSchema", () => { heard.add("tools"); });
else changed = () => heard.add("tools");

async function fact(what, test) {
  for (const end = Date.now() + patience / 2; Date.now() < end; await new Promise((done) => setTimeout(done, 20))) if (await test()) return;
  throw new Error(`waited in vain for ${what}`);
}

function equal(wanted, got) {
  const [w, g] = [JSON.stringify(wanted), JSON.stringify(got)];
  if (w !== g) throw new Error(`wanted ${w?.slice(0, 80)}, got ${g?.slice(0, 200)}`);
}

const result = (name, given = {}, options = {}) =>
  isOld ? client.callTool({ name: prefix + name, arguments: given }, undefined, options) : client.callTool({ name: prefix + name, arguments: given }, options);
const call = async (name, given, options) => (await result(name, given, options)).content[0].text;

async function lists(name) {
  const { tools } = await (isOld ? client.listTools() : client.listTools({}, { cacheMode: "refresh" }));
  return tools.some((tool) => tool.name === prefix + name);
}

const isNew = () => !isOld && client.getNegotiatedProtocolVersion() >= "2026-07-28";

const checks = {
  list: async () => equal(true, await lists("echo")),
  call: async () => equal("hi", await call("echo", { text: "hi" })),
  structured: async () => equal({ sum: 3 }, (await result("add", { a: 1, b: 2 })).structuredContent),
  failure: async () => equal(true, (await result("fail")).isError),
  unknown: async () => equal(true, await result("nothing").then((got) => got.isError, () => true)),
  progress: async () => {
    const steps = [];
    equal("done", await call("steps", { n: 1 }, { onprogress: ({ progress }) => steps.push(progress) }));
    equal([1, 2, 3], steps);
  },
  large: async () => equal(2 << 20, (await call("large", { size: 2 << 20 }, { onprogress: () => {} })).length),
  log: async () => {
    if (!isNew()) await client.setLoggingLevel("info");
    equal("said", await call("say", { text: "a word" }));
    await fact("the log message", () => heard.has("log a word"));
  },
  elicitation: async () => {
    answer = "accept";
    equal("Hello, you", await call("ask"));
    answer = "decline";
    equal("decline", await call("ask"));
  },
  elicitation_first: async () => {
    answer = "accept";
    equal("Hello, you", await call("ask_first"));
  },
  sampling: async () => equal("from me", await call("sample", { text: "me" })),
  roots: async () => equal("file:///home", await call("roots")),
  ping: async () => {
    if (!isNew()) await client.ping();
    equal("pong", await call("ping"));
  },
  cancellation: async () => {
    const before = await call("cancelled");
    await call("slow", {}, { timeout: 300 }).catch(() => {});
    await fact("the end of the call", async () => (await call("cancelled")) !== before);
  },
  resource: async () => {
    const read = async (uri) => (await client.readResource({ uri })).contents[0].text;
    equal("hello", await read("fixture://text"));
    equal("item 7", await read("fixture://item/7"));
    equal(1, (await client.listResourceTemplates()).resourceTemplates.length);
  },
  prompt: async () => equal("Hello, you", (await client.getPrompt({ name: `${prefix}hello`, arguments: { who: "you" } })).messages[0].content.text),
  completion: async () => {
    const params = { ref: { type: "ref/prompt", name: `${prefix}hello` }, argument: { name: "who", value: "wor" } };
    equal(["world", "word"], (await client.complete(params)).completion.values);
  },
  subscription: async () => {
    const uri = "fixture://text";
    const stream = isNew() ? await client.listen({ resourceSubscriptions: [uri] }) : await client.subscribeResource({ uri });
    equal("touched", await call("touch"));
    await fact("the update", () => heard.has(`updated ${uri}`));
    await (isNew() ? stream.close() : client.unsubscribeResource({ uri }));
  },
  change: async () => {
    await call("grow");
    await fact("the notification", () => heard.has("tools"));
    await fact("the new tool", () => lists("grown"));
  },
};

const line = (text) => process.stdout.write(`${text.replaceAll("\n", " ").slice(0, 300)}\n`);
try {
  await client.connect(await transport());
  const only = process.env.CHECKS && process.env.CHECKS.split(",");
  for (const [name, check] of Object.entries(checks)) {
    if (only && !only.includes(name)) continue;
    let timer;
    const late = new Promise((_, fail) => { timer = setTimeout(() => fail(new Error("no answer")), patience); });
    await Promise.race([check(), late]).then(() => line(`ok ${name}`), (error) => line(`not ${name}: ${error.message}`));
    clearTimeout(timer);
  }
  await client.close();
  line("ok leave");
} catch (error) {
  line(`not connect: ${error.message}`);
}
process.exit(0);
