// A fetch that chooses its worker. A connection stays with the worker that took it; so one is opened, the tool `where` is
// called on it to learn whose it is, and it carries the request only if that is not the worker of the request before.
import http from "node:http";
import { Readable } from "node:stream";
import { tell } from "./story.mjs";

const TRIES = 100;

const where = {
  body: JSON.stringify({
    jsonrpc: "2.0",
    id: 1,
    method: "tools/call",
    params: {
      name: "where",
      _meta: { "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} },
    },
  }),
  headers: {
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "where",
  },
};

// One POST on the one connection of `agent`; the answer, when its head is there.
function post(agent, url, { headers, body, signal }) {
  return new Promise((resolve, reject) => {
    const request = http.request(url, { agent, method: "POST", headers, signal }, (response) => resolve({ request, response }));
    request.on("error", reject);
    request.end(body);
  });
}

async function connect(url) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const { response } = await post(agent, new URL("/mcp", url), where);
  const answer = JSON.parse(Buffer.concat(await response.toArray()).toString());
  return { agent, worker: answer.result.content[0].text };
}

// Connections to the same worker stay open meanwhile: new ones go to the worker that has fewer.
async function connectElsewhere(url, before) {
  const others = [];
  try {
    for (let i = 0; i < TRIES; i++) {
      const connection = await connect(url);
      if (connection.worker !== before) return connection;
      others.push(connection);
    }
  } finally {
    for (const { agent } of others) agent.destroy();
  }
  throw new Error("every connection is taken by one and the same worker");
}

// Calls, and answers to what the gateway asked, go to another worker each time; the rest goes where it likes.
export function fetchElsewhere() {
  let before;
  return async (url, init) => {
    const message = init?.method === "POST" ? JSON.parse(init.body) : {};
    if (message.method !== "tools/call" && message.result === undefined) return fetch(url, init);

    const { agent, worker } = await connectElsewhere(url, before);
    before = worker;
    const headers = Object.fromEntries(new Headers(init.headers));
    const { request, response } = await post(agent, url, { headers, body: init.body, signal: init.signal });
    response.on("close", () => agent.destroy());
    tell("sent", { what: message.method ?? "answer", worker, reused: request.reusedSocket });
    return new Response(Readable.toWeb(response), { status: response.statusCode, headers: response.headers });
  };
}
