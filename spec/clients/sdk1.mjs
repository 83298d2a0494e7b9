// The official TypeScript SDK, 1.x:  node sdk1.mjs http|sse URL
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { run, story } from "./story.mjs";

const [kind, url] = process.argv.slice(2);

await run(async () => {
  const client = new Client({ name: "sdk1", version: "1" }, { capabilities: {} });
  const transport = kind === "sse" ? new SSEClientTransport(new URL(url)) : new StreamableHTTPClientTransport(new URL(url));
  await story({
    client,
    transport,
    call: (params, options) => client.callTool(params, undefined, options),
    facts: () => ({ session: transport.sessionId !== undefined }),
    leave: async () => {
      if (kind !== "sse") await transport.terminateSession();
      await client.close();
    },
  });
});
