// Clients of four versions of the official SDK that call a tool until stdin ends, each in one session and in new ones:
//   node upgraded.mjs UPSTREAMS URL SSE_URL TLS_URL MILLISECONDS
// UPSTREAMS: the folder whose node_modules has the older versions. One JSON line per failure; the last line is the sum.
import { createRequire } from "node:module"
import { pathToFileURL } from "node:url"
import { Client as Client2, StreamableHTTPClientTransport as Transport2 } from "@modelcontextprotocol/client"
import { Client as Client1 } from "@modelcontextprotocol/sdk/client/index.js"
import { StreamableHTTPClientTransport as Transport1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js"

const [upstreams, url, sseUrl, tlsUrl, pause] = process.argv.slice(2)
const require = createRequire(upstreams + "/")
const older = (path) => import(pathToFileURL(require.resolve(path)))
const { Client: Client10 } = await older("sdk-1-10/client/index.js")
const { SSEClientTransport: Sse10 } = await older("sdk-1-10/client/sse.js")
const { Client: Client17 } = await older("sdk-1-17/client/index.js")
const { StreamableHTTPClientTransport: Transport17 } = await older("sdk-1-17/client/streamableHttp.js")

const info = { name: "upgraded", version: "1" }
const none = { capabilities: {} }
const eras = [
  { name: "SDK 1.10 over HTTP+SSE", make: () => [new Client10(info, none), new Sse10(new URL(sseUrl))] },
  { name: "SDK 1.17", make: () => [new Client17(info, none), new Transport17(new URL(url))] },
  { name: "SDK 1.32 over TLS", make: () => [new Client1(info, none), new Transport1(new URL(tlsUrl))] },
  { name: "SDK 2.4", make: () => [new Client2(info, { ...none, versionNegotiation: { mode: { pin: "2026-07-28" } } }), new Transport2(new URL(url))] },
]

const sum = { calls: 0, away: 0, connected: 0, failures: 0 }
let isOver = false
process.stdin.on("end", () => (isOver = true)).resume()

const tell = (line) => process.stdout.write(JSON.stringify(line) + "\n")
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

function fail(who, doing, error) {
  sum.failures++
  const causes = []
  for (let at = error; at; at = at.cause) causes.push(String(at.message ?? at))
  tell({ at: new Date().toISOString(), who, doing, why: causes.join(": ") })
}

async function call(client) {
  const result = await client.callTool({ name: "sdk", arguments: {} })
  const text = result.content[0].text
  if (!result.isError) sum.calls++
  else if (text === "unavailable" || text === "unknown") sum.away++
  else throw new Error(text)
}

// Connects, calls while `more()`, and leaves.
async function live(era, who, more, ms) {
  const [client, transport] = era.make()
  let doing = "connect", isLeaving = false
  client.onerror = (error) => isLeaving || fail(who, "listen", error)
  try {
    await client.connect(transport)
    sum.connected++
    do {
      doing = "call"
      await call(client)
      await sleep(ms)
    } while (more())
    doing = "leave"
    isLeaving = true
    await transport.terminateSession?.()
  } catch (error) {
    fail(who, doing, error)
  }
  isLeaving = true
  await client.close().catch(() => {})
}

// Again and again; a client that stays connects again only after a failure.
async function repeat(era, stays, ms) {
  while (!isOver) {
    await live(era, era.name + (stays ? "" : " that connects anew"), () => stays && !isOver, stays ? ms : 0)
    await sleep(ms)
  }
}

await Promise.all(eras.flatMap((era) => [repeat(era, true, Number(pause)), repeat(era, false, 5 * Number(pause))]))
tell({ sum })
process.exit(0)
