// Lists all that a server has, and calls a tool of it, with the official TypeScript SDK 1.x or 2.x:
//   node inventory.mjs 1|2 TOOL ARGUMENTS stdio COMMAND…      or: … http URL
// It prints one object of JSON: what each list has, sorted by name, and the result or the error of the call. A list that
// the server refuses is missing. STDERR in the environment is the name of the file for the server's own lines.
import { openSync } from "node:fs";

const [version, tool, given, kind, where, ...args] = process.argv.slice(2);
const sdk = version === "1" ? "@modelcontextprotocol/sdk/client" : "@modelcontextprotocol/client";
const load = async (path) => import(version === "1" ? `${sdk}/${path}.js` : path === "stdio" ? `${sdk}/stdio` : sdk);
const { Client } = await load("index");

async function transport() {
  if (kind === "http") return new (await load("streamableHttp")).StreamableHTTPClientTransport(new URL(where));
  const stderr = process.env.STDERR ? openSync(process.env.STDERR, "a") : "inherit";
  return new (await load("stdio")).StdioClientTransport({ command: where, args, env: process.env, stderr });
}

const client = new Client({ name: "inventory", version: "1" }, { capabilities: {}, ...(version === "2" && { versionNegotiation: { mode: "auto" } }) });
await client.connect(await transport());
const has = client.getServerCapabilities();
const found = { lists: {} };

async function list(name, method, isThere, key = (one) => one.name) {
  const all = [];
  try {
    if (!isThere) return;
    for (let cursor; ; ) {
      const page = await client[method](cursor ? { cursor } : {});
      all.push(...page[name]);
      if (!(cursor = page.nextCursor)) break;
    }
  } catch {
    return;
  }
  found.lists[name] = Object.fromEntries(all.map((one) => [key(one), one]));
}

await list("tools", "listTools", has.tools);
await list("prompts", "listPrompts", has.prompts);
await list("resources", "listResources", has.resources, (one) => one.uri);
await list("resourceTemplates", "listResourceTemplates", has.resources, (one) => one.uriTemplate);
try {
  const { content, structuredContent, isError } = await client.callTool({ name: tool, arguments: JSON.parse(given) });
  found.result = { content, structuredContent, isError: isError === true };
} catch (error) {
  found.error = error.message;
}
process.stdout.write(JSON.stringify(found), () => process.exit(0));
