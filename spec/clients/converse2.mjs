// Asked and notified by upstreams of a gateway: the official TypeScript SDK, 2.x:  node converse2.mjs modern|legacy URL NAMES
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { capabilities, changed, converse, fill, sample } from "./converse.mjs";
import { run } from "./story.mjs";

const [kind, url, names] = process.argv.slice(2);
const modes = { modern: { pin: "2026-07-28" }, legacy: "legacy" };

await run(async () => {
  const client = new Client(
    { name: "converse2", version: "1" },
    {
      capabilities,
      versionNegotiation: { mode: modes[kind] },
      listChanged: { resources: { autoRefresh: false, debounceMs: 0, onChanged: changed } },
    },
  );
  const transport = new StreamableHTTPClientTransport(new URL(url));
  client.setRequestHandler("elicitation/create", fill);
  client.setRequestHandler("sampling/createMessage", sample);
  await converse({
    client,
    transport,
    names: JSON.parse(names),
    call: (params, options) => client.callTool(params, options),
    facts: () => ({ session: transport.sessionId !== undefined, era: client.getProtocolEra(), revision: client.getNegotiatedProtocolVersion() }),
    leave: async () => {
      if (kind === "legacy") await transport.terminateSession();
      await client.close();
    },
  });
});
