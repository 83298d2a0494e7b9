// Another's issuer and verifier of tokens (npm jose).
//   tokens.mjs issue ISSUER AUDIENCE      { jwks, pems, tokens }: a key and a token for every algorithm
//   tokens.mjs verify ISSUER AUDIENCE     reads { tokens: [{ algorithm, pem, token }] }, says which it takes
import { exportJWK, exportSPKI, generateKeyPair, importSPKI, jwtVerify, SignJWT } from "jose";

const algorithms = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"];
const [what, issuer, audience] = process.argv.slice(2);

async function issue() {
  const out = { jwks: { keys: [] }, pems: {}, tokens: {} };
  for (const algorithm of algorithms) {
    const { publicKey, privateKey } = await generateKeyPair(algorithm, { extractable: true });
    out.jwks.keys.push({ ...(await exportJWK(publicKey)), kid: algorithm, use: "sig", alg: algorithm });
    out.pems[algorithm] = await exportSPKI(publicKey);
    out.tokens[algorithm] = await new SignJWT({ scope: "a b", client_id: "desk" })
      .setProtectedHeader({ alg: algorithm, kid: algorithm, typ: "at+jwt" })
      .setIssuer(issuer).setAudience([audience, "https://other.test"]).setSubject("ann").setIssuedAt().setExpirationTime("10m").sign(privateKey);
  }
  return out;
}

async function verify() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const out = {};
  for (const { algorithm, pem, token } of JSON.parse(Buffer.concat(chunks)).tokens) {
    const { payload } = await jwtVerify(token, await importSPKI(pem, algorithm), { issuer, audience, algorithms: [algorithm] });
    out[algorithm] = payload.sub;
  }
  return out;
}

process.stdout.write(JSON.stringify(await (what === "issue" ? issue() : verify())));
