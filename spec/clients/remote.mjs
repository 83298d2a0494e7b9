// mcp-remote, by which clients that only start programs reach a gateway:  node remote.mjs URL PORT NAME PASSWORD
// It signs in twice: with nothing, and with what it has kept in its folder. PORT is where its browser comes back.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { run, tell } from "./story.mjs";

const [url, port, name, password] = process.argv.slice(2);
const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "remote-"));
const browser = join(folder, "browser"), opened = join(folder, "opened");
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
writeFileSync(browser, `#!/bin/sh\necho >>${quoted(opened)}\nexec ${quoted(process.execPath)} ${[here("./person.mjs"), name, password].map(quoted).join(" ")} "$1" go\n`, { mode: 0o755 });

async function visit(fact) {
  const client = new Client({ name: "remote", version: "1" }, { capabilities: {} });
  await client.connect(new StdioClientTransport({
    command: process.execPath, args: [here("./node_modules/mcp-remote/dist/proxy.js"), url, port, "--allow-http"], stderr: "ignore",
    env: { PATH: `${folder}:${process.env.PATH}`, HOME: folder, MCP_REMOTE_CONFIG_DIR: folder, BROWSER: browser },
  }));
  tell(fact, { text: (await client.callTool({ name: "who", arguments: {} })).content[0].text });
  await client.close();
}

await run(async () => {
  await visit("called");
  await visit("came back");
});
rmSync(folder, { recursive: true, force: true });
