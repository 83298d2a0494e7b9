// The official TypeScript SDK, 1.x:  node sdk1.mjs http|sse URL, or stdio COMMAND ARGUMENT...
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { run, story } from "./story.mjs";

const [kind, url, ...args] = process.argv.slice(2);
const transports = {
  sse: () => new SSEClientTransport(new URL(url)),
  http: () => new StreamableHTTPClientTransport(new URL(url)),
  stdio: () => new StdioClientTransport({ command: url, args }),
};

await run(async () => {
  const client = new Client({ name: "sdk1", version: "1" }, { capabilities: {} });
  const transport = transports[kind]();
  await story({
    client,
    transport,
    call: (params, options) => client.callTool(params, undefined, options),
    facts: () => ({ session: transport.sessionId !== undefined }),
    leave: async () => {
      if (kind === "http") await transport.terminateSession();
      await client.close();
    },
  });
});
