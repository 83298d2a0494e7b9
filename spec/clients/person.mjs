// A person at the sign-in of a gateway, by fetch: reads the pages, allows, signs in.
//   const { back } = await signIn(url, { name, password });   // the address that the browser is sent to at last
import { fileURLToPath } from "node:url";

// The fields of the first form of a page, and where it goes.
function formOf(page, at) {
  const form = page.match(/<form[^>]*action="([^"]+)"/);
  if (!form) throw new Error(`no form at ${at}: ${page}`);
  const hidden = [...page.matchAll(/<input[^>]*type="hidden"[^>]*>/g)].map(([tag]) => [tag.match(/name="([^"]+)"/)[1], tag.match(/value="([^"]*)"/)[1]]);
  return { to: new URL(form[1].replaceAll("&amp;", "&"), at), fields: Object.fromEntries(hidden) };
}

export async function signIn(url, { name, password, answer = "allow" }) {
  let cookie = "", at = new URL(url), body, seen = [];
  for (let step = 0; step < 6; step++) {
    const response = await fetch(at, {
      method: body ? "POST" : "GET", body, redirect: "manual",
      headers: { ...(cookie && { cookie }), ...(body && { origin: at.origin }) },
    });
    cookie = response.headers.get("set-cookie")?.split(";")[0] ?? cookie;
    const location = response.headers.get("location");
    if (location && new URL(location, at).origin !== at.origin) return { back: new URL(location), seen };
    if (location) {
      at = new URL(location, at);
      body = undefined;
      continue;
    }
    const page = await response.text();
    if (response.status !== 200) throw new Error(`${response.status} at ${at}: ${page}`);
    const { to, fields } = formOf(page, at);
    const asks = page.includes('type="password"') ? { name, password } : { answer };
    seen.push(Object.keys(asks)[0]);
    body = new URLSearchParams({ ...fields, ...asks });
    at = to;
  }
  throw new Error(`the sign-in does not end: ${at}`);
}

// As a program: node person.mjs NAME PASSWORD URL [go]; with `go` it goes where it is sent.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [name, password, url, goes] = process.argv.slice(2);
  const { back, seen } = await signIn(url, { name, password });
  if (goes) await fetch(back);
  console.log(JSON.stringify({ back, seen }));
}
