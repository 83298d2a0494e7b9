// A server of 2026-07-28 made with the official SDK 2.x:  node modern.mjs stdio, or http (then it prints "port N").
import { createServer } from "node:http";
import { Readable } from "node:stream";
import { McpServer, createMcpHandler, fromJsonSchema } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

function make() {
  const server = new McpServer({ name: "modern", version: "1" }, { instructions: "A fixture." });
  const input = fromJsonSchema({ type: "object", properties: { text: { type: "string" } } });
  server.registerTool("echo", { description: "Echoes.", inputSchema: input }, (args) => ({ content: [{ type: "text", text: args.text ?? "done" }] }));
  server.registerPrompt("hello", { description: "Greets." }, () => ({ messages: [{ role: "user", content: { type: "text", text: "Hello, you" } }] }));
  server.registerResource("text", "fixture://text", {}, (uri) => ({ contents: [{ uri: uri.href, text: "hello" }] }));
  return server;
}

if (process.argv[2] === "stdio") {
  serveStdio(make);
} else {
  const handler = createMcpHandler(make, { legacy: "reject" });
  const http = createServer(async (request, response) => {
    const gone = new AbortController();
    response.on("close", () => gone.abort());
    const headers = Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)]));
    const body = request.method === "POST" ? Readable.toWeb(request) : undefined;
    const init = { method: request.method, headers, body, duplex: "half", signal: gone.signal };
    const answer = await handler.fetch(new Request(`http://${request.headers.host}${request.url}`, init));
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    response.flushHeaders();
    if (answer.body) Readable.fromWeb(answer.body).on("error", () => {}).pipe(response);
    else response.end();
  });
  http.listen(0, "127.0.0.1", () => console.log(`port ${http.address().port}`));
}
