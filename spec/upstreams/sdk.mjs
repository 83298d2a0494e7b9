// A server made with one version of the official TypeScript SDK 1.x:  node sdk.mjs PACKAGE stdio, or http or sse (then it prints "port N").
// What its tools do stands in spec/helpers/sdks.lua.
import { createServer } from "node:http";
import { randomUUID } from "node:crypto";

const [name, kind] = process.argv.slice(2);
const { Server } = await import(`${name}/server/index.js`);
const types = await import(`${name}/types.js`);

const capabilities = {
  tools: { listChanged: true }, prompts: {}, resources: { subscribe: true }, logging: {}, ...(types.CompleteRequestSchema && { completions: {} }),
};
const form = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
const text = (value) => ({ content: [{ type: "text", text: String(value) }] });
const wait = (ms, signal) => new Promise((done) => {
  setTimeout(done, ms);
  signal.addEventListener("abort", done);
});
let count = 0;
let cancelled = 0;
let hasGrown = false;

// For each tool its description, the properties of its arguments, and what it does.
const tools = {
  echo: ["Echoes.", { text: { type: "string" } }, ({ args }) => text(args.text ?? "done")],
  counter: ["Counts.", {}, () => text(++count)],
  steps: ["Reports progress.", {}, async ({ note }) => {
    for (const progress of [1, 2, 3]) {
      await note(progress, 3);
      await new Promise((done) => setTimeout(done, 10)); // clients of this SDK lose what comes at once with the answer
    }
    return text("done");
  }],
  add: ["Adds, and says the sum as structured content.", { a: { type: "number" }, b: { type: "number" } },
    ({ args }) => ({ ...text(args.a + args.b), structuredContent: { sum: args.a + args.b } })],
  fail: ["Fails.", {}, () => ({ ...text("no luck"), isError: true })],
  large: ["Reports progress, and returns a text of so many bytes.", { size: { type: "number" } }, async ({ args, note }) => {
    await note(1, 1);
    return text("x".repeat(args.size));
  }],
  say: ["Sends a log message.", { text: { type: "string" } }, async ({ args, notify }) => {
    await notify({ method: "notifications/message", params: { level: "info", data: args.text } });
    return text("said");
  }],
  ask: ["Asks for a name in the middle of the call.", {}, async ({ server, extra }) => {
    const params = { message: "Who are you?", requestedSchema: form };
    const answer = await server.elicitInput(params, { relatedRequestId: extra.requestId });
    return text(answer.action === "accept" ? `Hello, ${answer.content.name}` : answer.action);
  }],
  sample: ["Has the client's model answer.", { text: { type: "string" } }, async ({ args, server, extra }) => {
    const messages = [{ role: "user", content: { type: "text", text: args.text } }];
    return { content: [(await server.createMessage({ messages, maxTokens: 10 }, { relatedRequestId: extra.requestId })).content] };
  }],
  roots: ["Says the client's roots.", {}, async ({ server, extra }) =>
    text((await server.listRoots({}, { relatedRequestId: extra.requestId })).roots.map((root) => root.uri).join(" "))],
  ping: ["Pings the client.", {}, async ({ server }) => {
    await server.ping();
    return text("pong");
  }],
  slow: ["Waits until it is cancelled.", {}, async ({ extra }) => {
    await wait(20000, extra.signal);
    if (extra.signal.aborted) cancelled++;
    return text("late");
  }],
  cancelled: ["Says how many slow calls have ended.", {}, () => text(cancelled)],
  grow: ["Adds a tool, and says so.", {}, async ({ server }) => {
    hasGrown = true;
    await server.sendToolListChanged();
    return text("grown");
  }],
  touch: ["Says that the resource was updated.", {}, async ({ server }) => {
    await server.sendResourceUpdated({ uri: "fixture://text" });
    return text("touched");
  }],
  grown: ["Is new.", {}, () => text("grown")],
};

function addTools(server) {
  server.setRequestHandler(types.ListToolsRequestSchema, () => ({
    tools: Object.entries(tools).filter(([tool]) => hasGrown || tool !== "grown")
      .map(([tool, [description, properties]]) => ({ name: tool, description, inputSchema: { type: "object", properties } })),
  }));
  server.setRequestHandler(types.CallToolRequestSchema, async (request, extra) => {
    const tool = tools[request.params.name];
    if (!tool) throw new types.McpError(types.ErrorCode.InvalidParams, `no tool ${request.params.name}`);
    const progressToken = request.params._meta?.progressToken;
    const notify = (message) => (extra.sendNotification ? extra.sendNotification(message) : server.notification(message));
    const note = (progress, total) =>
      progressToken === undefined ? undefined : notify({ method: "notifications/progress", params: { progressToken, progress, total } });
    return tool[2]({ args: request.params.arguments ?? {}, server, extra, notify, note });
  });
}

function make() {
  const server = new Server({ name, version: "1" }, { capabilities, instructions: "A fixture." });
  addTools(server);
  if (types.CompleteRequestSchema) {
    server.setRequestHandler(types.CompleteRequestSchema, (request) => ({
      completion: { values: ["world", "word"].filter((word) => word.startsWith(request.params.argument.value)) },
    }));
  }
  server.setRequestHandler(types.SubscribeRequestSchema, () => ({}));
  server.setRequestHandler(types.UnsubscribeRequestSchema, () => ({}));
  server.setRequestHandler(types.ListResourceTemplatesRequestSchema, () => ({
    resourceTemplates: [{ uriTemplate: "fixture://item/{id}", name: "item" }],
  }));
  server.setRequestHandler(types.ListPromptsRequestSchema, () => ({ prompts: [{ name: "hello", arguments: [{ name: "who" }] }] }));
  server.setRequestHandler(types.GetPromptRequestSchema, (request) => ({
    messages: [{ role: "user", content: { type: "text", text: `Hello, ${request.params.arguments?.who}` } }],
  }));
  server.setRequestHandler(types.ListResourcesRequestSchema, () => ({ resources: [{ uri: "fixture://text", name: "text" }] }));
  server.setRequestHandler(types.ReadResourceRequestSchema, (request) => ({
    contents: [{ uri: request.params.uri, text: request.params.uri.replace("fixture://text", "hello").replace("fixture://item/", "item ") }],
  }));
  return server;
}

if (kind === "stdio") {
  const { StdioServerTransport } = await import(`${name}/server/stdio.js`);
  await make().connect(new StdioServerTransport());
} else if (kind === "sse") {
  const { SSEServerTransport } = await import(`${name}/server/sse.js`);
  const transports = new Map();
  const http = createServer(async (request, response) => {
    const url = new URL(request.url, "http://localhost");
    const known = transports.get(url.searchParams.get("sessionId"));
    if (known) return known.handlePostMessage(request, response);
    if (request.method === "POST") return response.writeHead(404).end();
    const transport = new SSEServerTransport("/messages", response);
    transports.set(transport.sessionId, transport);
    return make().connect(transport);
  });
  http.listen(0, "127.0.0.1", () => console.log(`port ${http.address().port}`));
} else {
  const { StreamableHTTPServerTransport } = await import(`${name}/server/streamableHttp.js`);
  const transports = new Map();
  const http = createServer(async (request, response) => {
    let transport = transports.get(request.headers["mcp-session-id"]);
    if (!transport) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => transports.set(id, transport),
      });
      await make().connect(transport);
    }
    await transport.handleRequest(request, response);
  });
  http.listen(0, "127.0.0.1", () => console.log(`port ${http.address().port}`));
}
