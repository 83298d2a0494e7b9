// A server of both eras made with the official TypeScript SDK 2.x:  node sdk2.mjs stdio, or http (then it prints "port N").
// What its tools do stands in spec/helpers/sdks.lua.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { Readable } from "node:stream";
import {
  McpServer, ResourceTemplate, WebStandardStreamableHTTPServerTransport, createMcpHandler, fromJsonSchema, inputRequired, isLegacyRequest,
} from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const form = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
const question = { message: "Who are you?", requestedSchema: form };
const text = (value) => ({ content: [{ type: "text", text: String(value) }] });
const answered = (answer) => text(answer.action === "accept" ? `Hello, ${answer.content.name}` : answer.action);
const wait = (ms, signal) => new Promise((done) => {
  setTimeout(done, ms);
  signal.addEventListener("abort", done);
});
let count = 0;
let cancelled = 0;
let hasGrown = false;
let handler; // over HTTP in 2026-07-28: it makes a server for each request, so it says what has changed
const servers = new Set(); // of the older era

const tools = {
  echo: ["Echoes.", { text: { type: "string" } }, (args) => text(args.text)],
  counter: ["Counts.", {}, () => text(++count)],
  steps: ["Reports progress.", {}, async (args, ctx) => {
    for (const progress of [1, 2, 3]) {
      await note(ctx, progress, 3);
      await wait(10, ctx.mcpReq.signal); // clients of this SDK lose what comes at once with the answer
    }
    return text("done");
  }],
  fail: ["Fails.", {}, () => ({ ...text("no luck"), isError: true })],
  large: ["Reports progress, and returns a text of so many bytes.", { size: { type: "number" } }, async (args, ctx) => {
    await note(ctx, 1, 1);
    return text("x".repeat(args.size));
  }],
  say: ["Sends a log message.", { text: { type: "string" } }, async (args, ctx) => {
    await ctx.mcpReq.log("info", args.text);
    return text("said");
  }],
  ask: ["Asks for a name in the middle of the call.", {}, async (args, ctx) => answered(await ctx.mcpReq.elicitInput(question))],
  ask_first: ["Asks for a name before the call, as the SDK has it for both eras.", {}, (args, ctx) => {
    const answer = ctx.mcpReq.inputResponses?.who;
    return answer ? answered(answer) : inputRequired({ inputRequests: { who: inputRequired.elicit(question) } });
  }],
  sample: ["Has the client's model answer.", { text: { type: "string" } }, async (args, ctx) => {
    const messages = [{ role: "user", content: { type: "text", text: args.text } }];
    return { content: [(await ctx.mcpReq.requestSampling({ messages, maxTokens: 10 })).content] };
  }],
  roots: ["Says the client's roots.", {}, async (args, ctx, server) =>
    text((await server.server.listRoots({}, { relatedRequestId: ctx.mcpReq.id })).roots.map((root) => root.uri).join(" "))],
  ping: ["Pings the client.", {}, async (args, ctx, server) => {
    await server.server.ping();
    return text("pong");
  }],
  slow: ["Waits until it is cancelled.", {}, async (args, ctx) => {
    await wait(20000, ctx.mcpReq.signal);
    if (ctx.mcpReq.signal.aborted) cancelled++;
    return text("late");
  }],
  cancelled: ["Says how many slow calls have ended.", {}, () => text(cancelled)],
  grow: ["Adds a tool, and says so.", {}, () => {
    hasGrown = true;
    handler?.notify.toolsChanged();
    for (const server of servers) addTool(server, "grown");
    return text("grown");
  }],
  touch: ["Says that the resource was updated.", {}, async () => {
    handler?.notify.resourceUpdated("fixture://text");
    for (const server of servers) await server.server.sendResourceUpdated({ uri: "fixture://text" });
    return text("touched");
  }],
  grown: ["Is new.", {}, () => text("grown")],
};

function note(ctx, progress, total) {
  const progressToken = ctx.mcpReq._meta?.progressToken;
  if (progressToken !== undefined) return ctx.mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total } });
}

function addTool(server, name) {
  const [description, properties, run] = tools[name];
  const inputSchema = fromJsonSchema({ type: "object", properties });
  server.registerTool(name, { description, inputSchema }, (args, ctx) => run(args, ctx, server));
}

function make(context) {
  const capabilities = { logging: {}, completions: {}, resources: { subscribe: true } };
  const server = new McpServer({ name: "both", version: "1" }, { capabilities, instructions: "A fixture." });
  for (const name of Object.keys(tools)) if (hasGrown || name !== "grown") addTool(server, name);
  const terms = fromJsonSchema({ type: "object", properties: { a: { type: "number" }, b: { type: "number" } } });
  const outputSchema = fromJsonSchema({ type: "object", properties: { sum: { type: "number" } }, required: ["sum"] });
  server.registerTool("add", { description: "Adds, and says the sum as structured content.", inputSchema: terms, outputSchema }, (args) =>
    ({ ...text(args.a + args.b), structuredContent: { sum: args.a + args.b } }));
  const who = fromJsonSchema({ type: "object", properties: { who: { type: "string" } }, required: ["who"] });
  server.registerPrompt("hello", { argsSchema: who }, (args) => ({ messages: [{ role: "user", content: { type: "text", text: `Hello, ${args.who}` } }] }));
  server.registerResource("text", "fixture://text", {}, (uri) => ({ contents: [{ uri: uri.href, text: "hello" }] }));
  server.registerResource("item", new ResourceTemplate("fixture://item/{id}", { list: undefined }), {}, (uri, { id }) =>
    ({ contents: [{ uri: uri.href, text: `item ${id}` }] }));
  server.server.setRequestHandler("completion/complete", (request) => ({
    completion: { values: ["world", "word"].filter((word) => word.startsWith(request.params.argument.value)) },
  }));
  if (context?.era !== "modern" || process.argv[2] === "stdio") servers.add(server);
  if (context?.era !== "modern") {
    server.server.setRequestHandler("resources/subscribe", () => ({}));
    server.server.setRequestHandler("resources/unsubscribe", () => ({}));
  }
  return server;
}

const sessions = new Map();

// The older era: a server for each session.
async function serveSession(request) {
  let transport = sessions.get(request.headers.get("mcp-session-id"));
  if (!transport) {
    transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => sessions.set(id, transport),
    });
    await make({ era: "legacy" }).connect(transport);
  }
  return transport.handleRequest(request);
}

if (process.argv[2] === "stdio") {
  serveStdio(make);
} else {
  handler = createMcpHandler(make, { legacy: "reject" });
  const http = createServer(async (request, response) => {
    const gone = new AbortController();
    response.on("close", () => gone.abort());
    const headers = Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)]));
    const body = request.method === "POST" ? Readable.toWeb(request) : undefined;
    const asked = new Request(`http://${request.headers.host}${request.url}`,
      { method: request.method, headers, body, duplex: "half", signal: gone.signal });
    const answer = (await isLegacyRequest(asked)) ? await serveSession(asked) : await handler.fetch(asked);
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    response.flushHeaders();
    if (answer.body) Readable.fromWeb(answer.body).on("error", () => {}).pipe(response);
    else response.end();
  });
  http.listen(0, "127.0.0.1", () => console.log(`port ${http.address().port}`));
}
