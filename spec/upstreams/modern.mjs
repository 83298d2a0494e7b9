// A server of 2026-07-28 made with the official SDK 2.x:  node modern.mjs stdio, or http (then it prints "port N").
import { createServer } from "node:http";
import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { McpServer, createMcpHandler, fromJsonSchema, inputRequired } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const notes = []; // names of resources that the tool "grow" has added
let cancelled = 0; // calls of "work" that ended before their time
let handler; // over HTTP: it makes a server for each request, so it announces what has changed

const form = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
const said = (text) => ({ content: [{ type: "text", text }] });

function addNote(server, name) {
  const uri = `fixture://${name}`;
  server.registerResource(name, uri, {}, () => ({ contents: [{ uri, text: name }] }));
}

// Tools that ask their client, take long, and change a list.
function converse(server) {
  server.registerTool("ask", { description: "Asks for a name." }, (ctx) => {
    const answer = ctx.mcpReq.inputResponses?.who;
    if (answer) return said(`${answer.action}: ${answer.content?.name}`);
    return inputRequired({ inputRequests: { who: inputRequired.elicit({ message: "Who are you?", requestedSchema: form }) } });
  });
  const prompt = fromJsonSchema({ type: "object", properties: { prompt: { type: "string" } } });
  server.registerTool("sample", { description: "Asks the client's model.", inputSchema: prompt }, (args, ctx) => {
    const answer = ctx.mcpReq.inputResponses?.model;
    if (answer) return said(JSON.stringify(answer));
    const messages = [{ role: "user", content: { type: "text", text: args.prompt } }];
    return inputRequired({ inputRequests: { model: inputRequired.createMessage({ messages, maxTokens: 5 }) } });
  });
  const work = fromJsonSchema({ type: "object", properties: { duration: { type: "number" }, steps: { type: "number" } } });
  server.registerTool("work", { description: "Takes its time.", inputSchema: work }, async (args, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (let progress = 1; progress <= args.steps; progress++) {
      await sleep((args.duration * 1000) / args.steps);
      if (ctx.mcpReq.signal.aborted) {
        cancelled++;
        return said("cancelled");
      }
      const params = { progressToken, progress, total: args.steps };
      if (progressToken !== undefined) await ctx.mcpReq.notify({ method: "notifications/progress", params });
    }
    return said("worked");
  });
  server.registerTool("cancelled", { description: "Counts cancelled calls." }, () => said(String(cancelled)));
  const note = fromJsonSchema({ type: "object", properties: { name: { type: "string" } } });
  server.registerTool("grow", { description: "Adds a resource.", inputSchema: note }, (args) => {
    notes.push(args.name);
    if (handler) handler.notify.resourcesChanged();
    else addNote(server, args.name);
    return said("grown");
  });
  for (const name of notes) addNote(server, name);
}

function make() {
  const server = new McpServer({ name: "modern", version: "1" }, { instructions: "A fixture." });
  const input = fromJsonSchema({ type: "object", properties: { text: { type: "string" } } });
  server.registerTool("echo", { description: "Echoes.", inputSchema: input }, (args) => ({ content: [{ type: "text", text: args.text ?? "done" }] }));
  server.registerPrompt("hello", { description: "Greets." }, () => ({ messages: [{ role: "user", content: { type: "text", text: "Hello, you" } }] }));
  server.registerResource("text", "fixture://text", {}, (uri) => ({ contents: [{ uri: uri.href, text: "hello" }] }));
  converse(server);
  return server;
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
    const init = { method: request.method, headers, body, duplex: "half", signal: gone.signal };
    const answer = await handler.fetch(new Request(`http://${request.headers.host}${request.url}`, init));
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    response.flushHeaders();
    if (answer.body) Readable.fromWeb(answer.body).on("error", () => {}).pipe(response);
    else response.end();
  });
  http.listen(0, "127.0.0.1", () => console.log(`port ${http.address().port}`));
}
