// Asked by the gateway, each answer by another worker: the official TypeScript SDK, 1.x:  node elicit1.mjs http|sse URL
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { fetchElsewhere } from "./elsewhere.mjs";
import { answer, order } from "./order.mjs";
import { run } from "./story.mjs";

const [kind, url] = process.argv.slice(2);

await run(async () => {
  const client = new Client({ name: "elicit1", version: "1" }, { capabilities: { elicitation: {} } });
  const Transport = kind === "sse" ? SSEClientTransport : StreamableHTTPClientTransport;
  const transport = new Transport(new URL(url), { fetch: fetchElsewhere() });
  client.setRequestHandler(ElicitRequestSchema, answer);
  await order({
    client,
    transport,
    call: (params) => client.callTool(params),
    facts: () => ({ session: transport.sessionId !== undefined }),
    leave: async () => {
      if (kind !== "sse") await transport.terminateSession();
      await client.close();
    },
  });
});
