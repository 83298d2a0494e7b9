// The scenarios of the official conformance suite for authorization servers, with a person who signs in:
//   node authorization.mjs ISSUER RESOURCE CLIENT PORT NAME PASSWORD
// CLIENT has registered http://127.0.0.1:PORT/callback. Prints what the suite prints.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { signIn } from "./person.mjs";

const [issuer, resource, client, port, name, password] = process.argv.slice(2);
const suite = fileURLToPath(new URL("./node_modules/@modelcontextprotocol/conformance/dist/index.js", import.meta.url));
const out = mkdtempSync(join(tmpdir(), "authorization-"));
const child = spawn(process.execPath, [suite, "authorization", "--url", issuer, "--client-id", client, "--resource", resource, "-p", port, "-o", out], { stdio: ["ignore", "pipe", "inherit"] });
let text = "", hasSignedIn = false;
child.stdout.on("data", async (chunk) => {
  text += chunk;
  const url = text.match(/^(http\S*\?\S+)\n/m)?.[1];
  if (!url || hasSignedIn) return;
  hasSignedIn = true;
  const { back } = await signIn(url, { name, password });
  await fetch(back);
});
child.on("close", (code) => {
  rmSync(out, { recursive: true });
  process.stdout.write(text);
  process.exitCode = code ?? 1;
});
