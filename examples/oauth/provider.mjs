// An authorization server (oidc-provider) that knows one person and asks her nothing:  node provider.mjs
// A real one has a page for each `prompt` below.
import { createServer } from "node:http";
import { generateKeyPairSync } from "node:crypto";
import Provider from "oidc-provider";

const port = 7390;
const issuer = `http://127.0.0.1:${port}`;
const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });

const provider = new Provider(issuer, {
  jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), kid: "1", use: "sig", alg: "ES256" }] },
  scopes: ["openid", "notes:read", "notes:write"],
  ttl: { Interaction: 600, Session: 600, Grant: 600 },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  pkce: { required: () => true },
  enabledJWA: { idTokenSigningAlgValues: ["ES256"] },
  clientDefaults: { id_token_signed_response_alg: "ES256" },
  cookies: { keys: ["only for the example"] },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true }, // clients introduce themselves
    resourceIndicators: {            // a token is for one resource, and says so (RFC 8707)
      enabled: true,
      defaultResource: () => "http://127.0.0.1:7300/mcp",
      useGrantedResource: () => true,
      getResourceServerInfo: (_, resource) => ({
        scope: "notes:read notes:write", audience: resource, accessTokenTTL: 600, accessTokenFormat: "jwt", jwt: { sign: { alg: "ES256" } },
      }),
    },
  },
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
});

// A client registers with the scopes it wants at first; here it may ask for more later.
provider.on("registration_create.success", (_, client) => {
  const { scope, ...metadata } = client.metadata();
  return provider.Client.adapter.upsert(client.clientId, metadata);
});

async function grantOf(details) {
  const { params, session, grantId } = details;
  const grant = grantId ? await provider.Grant.find(grantId) : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope ?? "openid");
  grant.addResourceScope(params.resource ?? "http://127.0.0.1:7300/mcp", params.scope ?? "");
  return grant.save();
}

// Where a person would read "Let this program read your notes?", and answer.
async function interact(request, response) {
  const details = await provider.interactionDetails(request, response);
  const result = details.prompt.name === "login" ? { login: { accountId: "ann" } } : { consent: { grantId: await grantOf(details) } };
  await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
}

const answer = provider.callback();
createServer((request, response) => {
  if (!request.url.startsWith("/interaction/")) return answer(request, response);
  interact(request, response).catch((error) => response.writeHead(500).end(error.message));
}).listen(port, "127.0.0.1", () => console.log(`authorization server at ${issuer}`));
