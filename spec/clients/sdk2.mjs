// The official TypeScript SDK, 2.x:  node sdk2.mjs modern|legacy|auto|sse URL, or stdio-modern|legacy|auto COMMAND ARGUMENT...
import { Client, SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { run, story } from "./story.mjs";

const [over, url, ...args] = process.argv.slice(2);
const kind = over.replace("stdio-", "");
const modes = { modern: { pin: "2026-07-28" }, legacy: "legacy", auto: "auto", sse: "legacy" };

await run(async () => {
  const client = new Client({ name: "sdk2", version: "1" }, { capabilities: {}, versionNegotiation: { mode: modes[kind] } });
  const transport = over !== kind ? new StdioClientTransport({ command: url, args })
    : kind === "sse" ? new SSEClientTransport(new URL(url)) : new StreamableHTTPClientTransport(new URL(url));
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
      if (over === "legacy") await transport.terminateSession();
      await client.close();
    },
  });
});
