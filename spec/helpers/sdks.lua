-- The official SDKs, as servers behind the gateway and as its clients. A client made with each SDK tries one list of
-- things on a server made with each SDK, once directly and once through the gateway: what holds directly holds there.
-- The servers have the same tools: echo, counter, add (with structured content), fail, steps (progress), large (after
-- progress, a text of so many bytes), say (a log message), ask (an elicitation in the middle of the call), ask_first (one
-- that the SDK puts in the way of the client's revision), sample, roots, ping, slow and cancelled (how many slow calls
-- have ended), grow (adds the tool `grown`), touch (a resource is updated); those that an SDK cannot have are missing.
-- Beside them are the resource fixture://text, the template fixture://item/{id} and the prompt hello with a completion.
--   sdks.describe("python-sdk 2.3.0", describe, it, pending)     -- specs for all servers of that SDK, with all clients
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local node = require "spec.helpers.node"
local real = require "spec.helpers.real"
local upstream = require "spec.helpers.upstream"

local sdks = {}

local PATIENCE <const> = 120 -- seconds that all checks of a client may take

-- For each client: its program, what comes before PREFIX, and variables. `has_sse`: it speaks HTTP+SSE.
local function clients()
  local build, upstreams = uv.cwd() .. "/build", uv.cwd() .. "/spec/upstreams"
  local visit, python = node.folder .. "/visit.mjs", upstreams .. "/python/client.py"
  return {
    { "typescript-sdk 1.32.2", node.path, { visit, "1" }, has_sse = true },
    { "typescript-sdk 2.4.0", node.path, { visit, "2" } },
    { "typescript-sdk 2.4.0 by initialize", node.path, { visit, "2" }, has_sse = true, is_legacy = true },
    { "python-sdk 1.30.0", build .. "/python/1.30.0/bin/python", { python }, has_sse = true },
    { "python-sdk 2.3.0", build .. "/python/2.3.0/bin/python", { python } },
    { "python-sdk 2.3.0 by initialize", build .. "/python/2.3.0/bin/python", { python }, has_sse = true, is_legacy = true },
    { "go-sdk 1.8.0", build .. "/go/server", { "client" } },
    { "go-sdk 1.8.0 by initialize", build .. "/go/server", { "client" }, has_sse = true, is_legacy = true },
    { "rmcp 3.11.0", build .. "/rust/release/fixture", { "client" } },
    { "rmcp 3.11.0 by initialize", build .. "/rust/release/fixture", { "client" }, is_legacy = true },
    { "java-sdk 2.1.0", build .. "/java/fixture", { "client" }, has_sse = true },
  }
end

-- What does not hold through the gateway, and why. `server`, `client`: patterns of names; `kind`: of the transport.
-- Each row is a difference that is right, or that a user has to know.
sdks.differences = require "spec.official.differences"

local function difference(row, client, check)
  for _, one in ipairs(sdks.differences) do
    local is_meant = one.check == check and row.name:find(one.server or "", 1, false) and client[1]:find(one.client or "", 1, false)
    if is_meant then return one end
  end
end

-- Runs the client: what each check said, by its name; "" for one that holds. `only`: the names of those to try. Without
-- it all are tried, each for a short time: one that does not hold directly, since the machine is busy, is left out.
local function visit(client, prefix, kind, where, only)
  local env = { MODE = client.is_legacy and "legacy" or "auto", CHECKS = table.concat(only or {}, ","), SECONDS = only and "16" or "3" }
  local words = { table.unpack(client[3]) }
  table.move({ prefix, kind, table.unpack(where) }, 1, #where + 2, #words + 1, words)
  local code, out, err = gateway.run_program(client[2], words, { env = env, seconds = PATIENCE, cwd = uv.cwd() })
  local said, names = {}, {}
  for line in out:gmatch "[^\n]+" do
    local verdict, name, why = line:match "^(%a+) ([%w_]+):? ?(.*)$"
    if verdict == "ok" or verdict == "not" then
      said[name] = verdict == "ok" and "" or why
      names[#names + 1] = name
    end
  end
  if not said.leave and not said.connect then said.leave = "the client ended with " .. code .. ": " .. err:sub(-400) end
  assert(said.connect or next(said, next(said)), "the client did nothing: " .. out .. err)
  return said, names
end

-- Through the gateway, over the same transport on both sides.
local function visit_gateway(client, kind, u, only)
  local entries = { one = { list_wait = "20s" } }
  if kind == "stdio" then
    local dir = gateway.prepare { config = { upstreams = upstream.entries({ one = u }, entries) } }
    local said = visit(client, "one_", kind, { uv.fs_realpath(gateway.binary), "stdio", "--log-level", "error", dir .. "/moonpool.yaml" }, only)
    os.execute("rm -rf '" .. dir .. "'")
    return said
  end
  local g <close> = upstream.gateway({ one = u }, { workers = 2, entries = entries })
  return visit(client, "one_", kind, { kind == "sse" and g.url:gsub("/mcp$", "/sse") or g.url }, only)
end

local function kind_of(row)
  return not row.path and "stdio" or row.path == "/sse" and "sse" or "http"
end

local function where_of(u)
  return u.entry.url and { u.entry.url } or u.entry.command
end

-- Returns why they cannot be compared, if they do not even connect directly.
local function holds(row, client)
  local u <close> = real.start(row.name)
  local kind = kind_of(row)
  local directly, names = visit(client, "", kind, where_of(u))
  if directly.connect then return "they do not connect directly: " .. directly.connect end
  local other <close> = real.start(row.name)
  local only = {}
  for _, name in ipairs(names) do
    if directly[name] == "" then only[#only + 1] = name end
  end
  assert(#only > 0, "nothing holds directly")
  local through, lost = visit_gateway(client, kind, other, only), {}
  for _, name in ipairs(only) do
    local known = difference(row, client, name)
    local why = through[name] or through.connect or "it was not tried"
    if why ~= "" and not known then lost[#lost + 1] = name .. ": " .. why end
    if why == "" and known and not known.is_by_chance then lost[#lost + 1] = name .. " holds: spec/official/differences.lua says otherwise" end
  end
  assert(#lost == 0, "holds directly, and not through the gateway:\n  " .. table.concat(lost, "\n  "))
end

--- Specs for each server made with this SDK, before a client of each.
function sdks.describe(sdk, describe, it, pending)
  for _, row in ipairs(real.servers) do
    if row.sdk == sdk then
      describe(row.name, function()
        for _, client in ipairs(clients()) do
          if kind_of(row) ~= "sse" or client.has_sse then
            it("does through the gateway what it does directly for a client of " .. client[1], function()
              if real.lacks(row.name) then return pending(real.lacks(row.name)) end
              if not uv.fs_stat(client[2]) then return pending(client[2] .. " is not there: ./dev has said why") end
              local why = holds(row, client)
              if why then pending(why) end
            end)
          end
        end
      end)
    end
  end
end

return sdks
