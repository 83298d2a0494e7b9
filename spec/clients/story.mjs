// What each client does: connect, list, call, get progress, leave. One JSON line per fact; the spec reads them.

export function tell(fact, more = {}) {
  process.stdout.write(JSON.stringify({ fact, ...more }) + "\n");
}

const textOf = (result) => result.content.map((block) => block.text).join("");

// `call(params, options)` is the SDK's callTool; `leave` says goodbye in the transport's way.
export async function story({ client, transport, call, leave, facts }) {
  let leaving = false; // from then on the SDK reports its own aborted streams as errors
  client.onerror = (error) => leaving || tell("error", { message: String(error) });
  await client.connect(transport);
  tell("connected", { server: client.getServerVersion(), ...facts() });

  const { tools } = await client.listTools();
  tell("tools", { names: tools.map((tool) => tool.name), schema: tools.find((tool) => tool.name === "add")?.inputSchema });

  const sum = await call({ name: "add", arguments: { a: 2, b: 40 } });
  tell("add", { text: textOf(sum), isError: sum.isError ?? false });

  const refused = await call({ name: "add", arguments: { a: 2, b: "forty" } });
  tell("refused", { text: textOf(refused), isError: refused.isError ?? false });

  const down = await call(
    { name: "countdown", arguments: { from: 3 } },
    { onprogress: ({ progress, total, message }) => tell("progress", { progress, total, message }) },
  );
  tell("countdown", { text: textOf(down) });

  const nap = await call({ name: "nap", arguments: {} }); // at 2025-11-25 its connection ends, and the SDK comes back
  tell("nap", { text: textOf(nap) });

  leaving = true;
  await leave();
  tell("left");
}

export async function run(main) {
  try {
    await main();
  } catch (error) {
    tell("failed", { message: String(error?.stack ?? error) });
    process.exitCode = 1;
  }
}
