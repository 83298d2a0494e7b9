// A server made with one version of the official TypeScript SDK 1.x:  node sdk.mjs PACKAGE stdio, or http (then it prints "port N").
import { createServer } from "node:http";
import { randomUUID } from "node:crypto";

const [name, kind] = process.argv.slice(2);
const { Server } = await import(`${name}/server/index.js`);
const types = await import(`${name}/types.js`);

function make() {
  const server = new Server({ name, version: "1" }, { capabilities: { tools: {}, prompts: {}, resources: {}, logging: {} }, instructions: "A fixture." });
  let count = 0;
  server.setRequestHandler(types.ListToolsRequestSchema, () => ({
    tools: [
      { name: "echo", description: "Echoes.", inputSchema: { type: "object", properties: { text: { type: "string" } } } },
      { name: "counter", description: "Counts.", inputSchema: { type: "object" } },
      { name: "steps", description: "Reports progress.", inputSchema: { type: "object" } },
    ],
  }));
  server.setRequestHandler(types.CallToolRequestSchema, async (request, extra) => {
    const token = request.params._meta?.progressToken;
    if (request.params.name === "steps" && token !== undefined) {
      for (const progress of [1, 2, 3]) {
        await extra.sendNotification({ method: "notifications/progress", params: { progressToken: token, progress, total: 3 } });
      }
    }
    const text = request.params.name === "counter" ? String(++count) : String(request.params.arguments?.text ?? "done");
    return { content: [{ type: "text", text }] };
  });
  server.setRequestHandler(types.ListPromptsRequestSchema, () => ({ prompts: [{ name: "hello", arguments: [{ name: "who" }] }] }));
  server.setRequestHandler(types.GetPromptRequestSchema, (request) => ({
    messages: [{ role: "user", content: { type: "text", text: `Hello, ${request.params.arguments?.who}` } }],
  }));
  server.setRequestHandler(types.ListResourcesRequestSchema, () => ({ resources: [{ uri: "fixture://text", name: "text" }] }));
  server.setRequestHandler(types.ReadResourceRequestSchema, (request) => ({ contents: [{ uri: request.params.uri, text: "hello" }] }));
  return server;
}

if (kind === "stdio") {
  const { StdioServerTransport } = await import(`${name}/server/stdio.js`);
  await make().connect(new StdioServerTransport());
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
