// An official client that signs in at the gateway:  node client.mjs
// It knows the gateway's address and nothing else. A person opens the page that it prints; the program BROWSER, if it is set, opens it by itself.
import { execFile } from "node:child_process";
import { createServer } from "node:http";
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from "@modelcontextprotocol/client";

const url = new URL("http://127.0.0.1:7300/mcp");
const redirect = "http://127.0.0.1:7391/back";

// The parameters with which the browser comes back, once.
const back = new Promise((resolve) => {
  const server = createServer((request, response) => {
    const at = new URL(request.url, redirect);
    if (at.pathname !== new URL(redirect).pathname) return response.writeHead(404).end();
    response.end("Signed in. This page can be closed.\n");
    server.close();
    server.closeIdleConnections();
    resolve(at.searchParams);
  }).listen(new URL(redirect).port, "127.0.0.1");
});

const kept = {};
const authProvider = {
  redirectUrl: redirect,
  clientMetadata: {
    client_name: "example", redirect_uris: [redirect], token_endpoint_auth_method: "none", grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
  },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => { kept.client = client; },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
  saveDiscoveryState: (state) => { kept.discovery = state; },
  discoveryState: () => kept.discovery,
  redirectToAuthorization: (at) => {
    console.log(`open ${at}`);
    if (process.env.BROWSER) execFile(process.env.BROWSER, [at.href], (error) => error && console.error(error.message));
  },
};

let client, transport;

async function connect() {
  client = new Client({ name: "example", version: "1" }, { capabilities: {} });
  transport = new StreamableHTTPClientTransport(url, { authProvider });
  await client.connect(transport);
}

try {
  await connect();
} catch (error) {
  if (!(error instanceof UnauthorizedError)) throw error;
  await transport.finishAuth(await back);
  await connect();
}
console.log(`whoami: ${(await client.callTool({ name: "whoami", arguments: {} })).content[0].text}`);
await client.close();
