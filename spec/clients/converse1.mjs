// Asked and notified by upstreams of a gateway: the official TypeScript SDK, 1.x:  node converse1.mjs http|sse URL NAMES
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CreateMessageRequestSchema, ElicitRequestSchema, ResourceListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { capabilities, changed, converse, fill, sample } from "./converse.mjs";
import { run } from "./story.mjs";

const [kind, url, names] = process.argv.slice(2);

await run(async () => {
  const client = new Client({ name: "converse1", version: "1" }, { capabilities });
  const Transport = kind === "sse" ? SSEClientTransport : StreamableHTTPClientTransport;
  const transport = new Transport(new URL(url));
  client.setRequestHandler(ElicitRequestSchema, fill);
  client.setRequestHandler(CreateMessageRequestSchema, sample);
  client.setNotificationHandler(ResourceListChangedNotificationSchema, changed);
  await converse({
    client,
    transport,
    names: JSON.parse(names),
    call: (params, options) => client.callTool(params, undefined, options),
    facts: () => ({ session: transport.sessionId !== undefined }),
    leave: async () => {
      if (kind !== "sse") await transport.terminateSession();
      await client.close();
    },
  });
});
