// node's own HTTP/2 client against a gateway, on one connection: what a browser's EventSource and fetch do.
//   node http2.mjs URL MODE [CA]      prints one line of JSON
import http2 from "node:http2"
import { readFileSync } from "node:fs"

const [url, mode, ca] = process.argv.slice(2)
const session = http2.connect(new URL(url).origin, ca ? { ca: readFileSync(ca), servername: "localhost" } : {})
session.on("error", (error) => finish({ error: error.message }))

function finish(found) {
  process.stdout.write(JSON.stringify(found) + "\n", () => process.exit(0))
}

const both = "application/json, text/event-stream"

function ask(headers, body) {
  return new Promise((resolve, reject) => {
    const stream = session.request({ ":path": "/mcp", ...headers })
    const found = { data: "" }
    stream.setEncoding("utf8")
    stream.on("response", (head) => Object.assign(found, { status: head[":status"], head }))
    stream.on("data", (part) => (found.data += part))
    stream.on("end", () => resolve(found))
    stream.on("error", reject)
    stream.end(body)
  })
}

const post = (message, headers) =>
  ask({ ":method": "POST", accept: both, "content-type": "application/json", ...headers }, JSON.stringify(message))

async function openSession() {
  const answer = await post({
    jsonrpc: "2.0", id: 0, method: "initialize",
    params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "spec", version: "1" } },
  })
  return answer.head["mcp-session-id"]
}

const tool = (id, name, args, progressToken) => ({
  jsonrpc: "2.0", id, method: "tools/call",
  params: { name, arguments: args, _meta: progressToken ? { progressToken } : undefined },
})

// An event stream as EventSource holds it: resolves with its first bytes, and collects the later ones.
function events(id) {
  return new Promise((resolve, reject) => {
    const stream = session.request({ ":method": "GET", ":path": "/mcp", accept: "text/event-stream", "mcp-session-id": id })
    const found = { stream, data: "", status: 0 }
    stream.setEncoding("utf8")
    stream.on("response", (head) => (found.status = head[":status"]))
    stream.on("data", (part) => {
      found.data += part
      resolve(found)
    })
    stream.on("error", reject)
    stream.on("close", () => (found.isClosed = true))
  })
}

const modes = {
  async streams() {
    const ids = await Promise.all(Array.from({ length: 50 }, openSession))
    const streams = await Promise.all(ids.map(events))
    const calls = await Promise.all(ids.map((id, i) => post(tool(i, "add", { a: i, b: 1 }), { "mcp-session-id": id })))
    await post(tool(99, "change", {}), { "mcp-session-id": ids[0] })
    const until = Date.now() + 5000
    const isTold = (one) => one.data.includes("notifications/tools/list_changed")
    while (!streams.every(isTold) && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 5))
    return {
      open: streams.filter((one) => one.status === 200 && !one.isClosed).length,
      told: streams.filter(isTold).length,
      right: calls.filter((one, i) => JSON.parse(one.data).result.content[0].text === String(i + 1)).length,
    }
  },
  // One call of `add` in each revision.
  async revisions() {
    const found = {}
    const text = (answer) => JSON.parse(answer.data).result.content[0].text
    for (const revision of ["2025-03-26", "2025-06-18", "2025-11-25"]) {
      const opened = await post({
        jsonrpc: "2.0", id: 0, method: "initialize",
        params: { protocolVersion: revision, capabilities: {}, clientInfo: { name: "spec", version: "1" } },
      })
      const mine = { "mcp-session-id": opened.head["mcp-session-id"], "mcp-protocol-version": revision }
      await post({ jsonrpc: "2.0", method: "notifications/initialized" }, mine)
      found[revision] = text(await post(tool(1, "add", { a: 1, b: 2 }), mine))
    }
    const call = tool(1, "add", { a: 1, b: 2 })
    call.params._meta = {
      "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
    }
    found["2026-07-28"] = text(await post(call, {
      "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "add",
    }))
    found["2024-11-05"] = await new Promise((resolve) => {
      const stream = session.request({ ":method": "GET", ":path": "/sse", accept: "text/event-stream" })
      let data = "", isAsked = false
      stream.setEncoding("utf8")
      stream.on("data", async (part) => {
        data += part
        const path = data.match(/event: endpoint\r?\ndata: (\S+)/)?.[1]
        if (path && !isAsked) {
          isAsked = true
          const to = { ":path": path }
          await post({
            jsonrpc: "2.0", id: 0, method: "initialize",
            params: { protocolVersion: "2024-11-05", capabilities: {}, clientInfo: { name: "spec", version: "1" } },
          }, to)
          await post({ jsonrpc: "2.0", method: "notifications/initialized" }, to)
          await post(tool(1, "add", { a: 1, b: 2 }), to)
        }
        const answer = data.match(/"text":"(\d+)"/)?.[1]
        if (answer) resolve(answer)
      })
    })
    return found
  },
  async large() {
    const id = await openSession()
    const answers = await Promise.all(
      [1, 2, 3, 4].map((i) => post(tool(i, "long", { text: "x".repeat(900000) }), { "mcp-session-id": id })))
    const json = (text) => JSON.parse(text.match(/^data: (\{.*\})$/m)?.[1] ?? text) // a slow answer is an event
    return { bytes: answers.map((one) => json(one.data).result.content[0].text.length) }
  },
  async progress() {
    const id = await openSession()
    const answer = await post(tool(1, "steps", {}, "t"), { "mcp-session-id": id })
    return { status: answer.status, type: answer.head["content-type"], notes: answer.data.split("notifications/progress").length - 1 }
  },
  async drain() {
    const id = await openSession()
    let isTold = false
    session.on("goaway", () => (isTold = true))
    const closed = new Promise((resolve) => session.on("close", resolve))
    const call = post(tool(1, "wait", { seconds: 1 }), { "mcp-session-id": id })
    process.stdout.write("called\n")
    const answer = await call
    await closed
    return { text: JSON.parse(answer.data.match(/\{.*\}/)[0]).result.content[0].text, isTold }
  },
}

finish(await modes[mode]())
