// An official TypeScript SDK that signs in at a gateway:  node sign_in.mjs 1|2 URL NAME PASSWORD
// It calls the tool `who` without a token, lets the person sign in, calls, loses its access token and refreshes, and
// connects once more with what it has kept.
import { Client as Client1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as Transport1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { Client as Client2, StreamableHTTPClientTransport as Transport2 } from "@modelcontextprotocol/client";
import { signIn } from "./person.mjs";
import { run, tell } from "./story.mjs";

const [version, url, name, password] = process.argv.slice(2);
const [Client, Transport] = version === "1" ? [Client1, Transport1] : [Client2, Transport2];
const redirect = "http://127.0.0.1:4711/callback";

// What a client keeps of a sign-in, and how it opens the browser.
const kept = {};
const provider = {
  redirectUrl: redirect,
  clientMetadata: {
    client_name: "A client of the specs", redirect_uris: [redirect], token_endpoint_auth_method: "none",
    grant_types: ["authorization_code", "refresh_token"], response_types: ["code"],
  },
  state: () => "a state",
  clientInformation: () => kept.client,
  saveClientInformation: (client) => { kept.client = client; },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => {
    kept.tokens = tokens;
    kept.times = (kept.times ?? 0) + 1;
  },
  redirectToAuthorization: async (to) => {
    kept.went = to;
    kept.came = await signIn(to, { name, password });
  },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
  saveDiscoveryState: (found) => { kept.found = found; },
  discoveryState: () => kept.found,
};

async function connect() {
  const client = new Client({ name: "signs in", version: "1" }, { capabilities: {} });
  const transport = new Transport(new URL(url), { authProvider: provider });
  await client.connect(transport);
  return { client, transport };
}

const who = async ({ client }) => (await client.callTool({ name: "who", arguments: {} })).content[0].text;

await run(async () => {
  const first = new Client({ name: "signs in", version: "1" }, { capabilities: {} });
  const transport = new Transport(new URL(url), { authProvider: provider });
  const refused = await first.connect(transport).then(() => undefined, (error) => error);
  tell("refused", { error: refused?.constructor.name });
  const { back, seen } = kept.came;
  tell("signed in", { pages: seen, state: back.searchParams.get("state"), iss: back.searchParams.get("iss"), at: back.origin + back.pathname });
  if (version === "1") await transport.finishAuth(back.searchParams.get("code"));
  else await transport.finishAuth(back.searchParams);
  const here = await connect();
  tell("called", { text: await who(here) });

  kept.tokens = { ...kept.tokens, access_token: "expired" };
  const before = kept.times;
  tell("refreshed", { text: await who(here), times: kept.times - before });
  await here.client.close();

  const again = await connect();
  tell("came back", { text: await who(again) });
  await again.client.close();
});
