// The official TypeScript SDK, 2.x:  node sdk2.mjs modern|legacy|auto|sse URL
import { Client, SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { run, story } from "./story.mjs";

const [kind, url] = process.argv.slice(2);
const modes = { modern: { pin: "2026-07-28" }, legacy: "legacy", auto: "auto", sse: "legacy" };

await run(async () => {
  const client = new Client({ name: "sdk2", version: "1" }, { capabilities: {}, versionNegotiation: { mode: modes[kind] } });
  const transport = kind === "sse" ? new SSEClientTransport(new URL(url)) : new StreamableHTTPClientTransport(new URL(url));
  await story({
    client,
    transport,
    call: (params, options) => client.callTool(params, options),
    facts: () => ({
      session: transport.sessionId !== undefined,
      era: client.getProtocolEra(),
      revision: client.getNegotiatedProtocolVersion(),
    }),
    leave: async () => {
      if (kind === "legacy") await transport.terminateSession();
      await client.close();
    },
  });
});
