// Asked by the gateway in 2026-07-28: the official TypeScript SDK, 2.x:  node elicit2.mjs URL [--wait]
// Each round goes to another worker; with --wait the SDK connects as it likes, and a round starts when a line comes on stdin.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { fetchElsewhere } from "./elsewhere.mjs";
import { answer, order, waits } from "./order.mjs";
import { run } from "./story.mjs";

const url = process.argv[2];

await run(async () => {
  const client = new Client(
    { name: "elicit2", version: "1" },
    { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: { pin: "2026-07-28" } } },
  );
  const transport = new StreamableHTTPClientTransport(new URL(url), waits ? {} : { fetch: fetchElsewhere() });
  client.setRequestHandler("elicitation/create", answer);
  await order({
    client,
    transport,
    call: (params) => client.callTool(params),
    facts: () => ({ revision: client.getNegotiatedProtocolVersion() }),
    leave: () => client.close(),
  });
});
