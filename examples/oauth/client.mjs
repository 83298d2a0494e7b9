// The official client walks the whole way:  node client.mjs
// No token: 401. It finds the authorization server, introduces itself, gets a token for reading (PKCE), calls. Writing needs more: 403.
// It asks for that too, and calls again.
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from "@modelcontextprotocol/client";

const url = new URL("http://127.0.0.1:7300/mcp");
const redirect = "http://127.0.0.1:7391/back";

// What a browser does: follows redirects, keeps cookies, until it is sent back to the program.
async function browse(at) {
  const cookies = new Map();
  for (let hops = 0; hops < 20; hops++) {
    const response = await fetch(at, { redirect: "manual", headers: { cookie: [...cookies].map((pair) => pair.join("=")).join("; ") } });
    for (const line of response.headers.getSetCookie()) {
      const [name, value] = line.split(";")[0].split("=");
      cookies.set(name, value);
    }
    const next = response.headers.get("location");
    if (!next) throw new Error(`${response.status} at ${at}: ${await response.text()}`);
    at = new URL(next, at);
    if (at.href.startsWith(redirect)) return at.searchParams;
  }
  throw new Error("too many redirects");
}

const kept = {};
const authProvider = {
  redirectUrl: redirect,
  clientMetadata: {
    client_name: "example", redirect_uris: [redirect], token_endpoint_auth_method: "none", grant_types: ["authorization_code"], response_types: ["code"],
  },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => { kept.client = client; },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
  saveDiscoveryState: (state) => { kept.discovery = state; },
  discoveryState: () => kept.discovery,
  redirectToAuthorization: async (at) => {
    console.log(`asks ${at.origin} for ${at.searchParams.get("scope")}`);
    kept.back = await browse(at);
  },
};

let client, transport;

async function connect() {
  client = new Client({ name: "example", version: "1" }, { capabilities: {} });
  transport = new StreamableHTTPClientTransport(url, { authProvider });
  await client.connect(transport);
}

// Does it; where that needs a token first, or a better one, gets it and does it again.
async function authorized(work) {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
    await transport.finishAuth(kept.back);
    return await work();
  }
}

const call = (name, args) => authorized(() => client.callTool({ name, arguments: args }));

await authorized(connect);
console.log(`read_note: ${(await call("read_note", { name: "shopping" })).content[0].text}`);
console.log(`write_note: ${(await call("write_note", { name: "shopping", text: "milk, bread" })).content[0].text}`);
console.log(`read_note: ${(await call("read_note", { name: "shopping" })).content[0].text}`);
await client.close();
