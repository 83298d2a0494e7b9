-- The official SDKs, as servers behind the gateway and as its clients. A client made with each SDK tries one list of
-- things on a server made with each SDK, once directly and once through the gateway: what holds directly holds there.
-- The servers have the same tools: echo, counter, add (with structured content), fail, steps (progress), large (after
-- progress, a text of so many bytes), say (a log message), ask (an elicitation in the middle of the call), ask_first (one
-- that the SDK puts in the way of the client's revision), sample, roots, ping, slow and cancelled (how many slow calls
-- have ended), grow (adds the tool `grown`), touch (a resource is updated); those that an SDK cannot have are missing.
-- Beside them are the resource fixture://text, the template fixture://item/{id} and the prompt hello with a completion.
--   sdks.describe("python-sdk 2.3.0", describe, it, function(why) pending(why) end)     -- all servers of that SDK, with all clients
local uv = require "luv"
local cluster = require "spec.helpers.cluster"
local gateway = require "spec.helpers.gateway"
local node = require "spec.helpers.node"
local real = require "spec.helpers.real"
local upstream = require "spec.helpers.upstream"

local sdks = {}

local PATIENCE <const>, DIRECT_PATIENCE <const> = 120, 45 -- seconds that all checks of a client may take

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

-- Seconds that each check may take: where it is not known whether it holds, and where it has held directly.
local AT_FIRST <const>, AGAIN <const> = "3", "16"

-- Runs the client: what each check said, by its name; "" for one that holds. `only`: the names of those to try; nil: all.
local function visit(client, prefix, kind, where, seconds, only, patience)
  local env = { MODE = client.is_legacy and "legacy" or "auto", CHECKS = table.concat(only or {}, ","), SECONDS = seconds }
  local words = { table.unpack(client[3]) }
  table.move({ prefix, kind, table.unpack(where) }, 1, #where + 2, #words + 1, words)
  local code, out, err = gateway.run_program(client[2], words, { env = env, seconds = patience or PATIENCE, cwd = uv.cwd() })
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

local function kind_of(row)
  return not row.path and "stdio" or row.path == "/sse" and "sse" or "http"
end

local function where_of(u)
  return u.entry.url and { u.entry.url } or u.entry.command
end

-- Through the gateway, over the same transport on both sides.
local function visit_gateway(client, row, seconds, only)
  local u <close> = real.start(row.name)
  local kind = kind_of(row)
  local entries = { one = { list_wait = "20s" } }
  if kind == "stdio" then
    local dir = gateway.prepare { config = { upstreams = upstream.entries({ one = u }, entries) } }
    local said, names = visit(client, "one_", kind, { uv.fs_realpath(gateway.binary), "stdio", "--log-level", "error", dir .. "/moonpool.yaml" }, seconds, only)
    os.execute("rm -rf '" .. dir .. "'")
    return said, names
  end
  local g <close> = upstream.gateway({ one = u }, { workers = 2, entries = entries, start = cluster.front })
  return visit(client, "one_", kind, { kind == "sse" and g.url:gsub("/mcp$", "/sse") or g.url }, seconds, only)
end

-- The same without the gateway. A client that does not end is one that does not connect: that of go-sdk waits for the
-- head of java-sdk's GET stream, which comes with its first event.
local function visit_directly(client, row, only)
  local u <close> = real.start(row.name)
  local ok, said, names = pcall(visit, client, "", kind_of(row), where_of(u), AT_FIRST, only, DIRECT_PATIENCE)
  if not ok then return { connect = tostring(said):match "[^\n]*" }, {} end
  return said, names
end

-- Returns why they cannot be compared, if they do not even connect directly. What holds through the gateway is not tried
-- directly, unless the client ends before its last check.
local function holds(row, client)
  local through, names = visit_gateway(client, row, AT_FIRST)
  local is_complete, wanting, lost = (through.leave or through.connect) == "", {}, {}
  for _, name in ipairs(names) do
    local known = difference(row, client, name)
    if through[name] ~= "" then wanting[#wanting + 1] = name end
    if through[name] == "" and known and not known.is_by_chance then lost[#lost + 1] = name .. " holds: spec/official/differences.lua says otherwise" end
  end
  if #wanting > 0 or not is_complete then
    local directly, all = visit_directly(client, row, is_complete and wanting or nil)
    if directly.connect then return "they do not connect directly: " .. directly.connect end
    local only = {}
    for _, name in ipairs(all) do
      if directly[name] == "" and through[name] ~= "" and not difference(row, client, name) then only[#only + 1] = name end
    end
    local is_end = table.concat(only, " "):find "leave" -- shows itself after the other checks only
    local again = #only > 0 and visit_gateway(client, row, AGAIN, not is_end and only or nil)
    for _, name in ipairs(only) do
      local why = again[name] or again.connect or "it was not tried"
      if why ~= "" then lost[#lost + 1] = name .. ": " .. why end
    end
  end
  assert(#names > 1, "nothing was tried")
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
