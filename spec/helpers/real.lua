-- Real MCP servers from npm (spec/upstreams), PyPI (spec/upstreams/python), Go's module proxy (spec/upstreams/go), crates
-- (spec/upstreams/rust) and Maven (spec/upstreams/java), which the gateway starts or a spec runs for it.
--   local u <close> = real.start "sdk 1.10.2 http"     u.entry is what the configuration has for it
local uv = require "luv"
local children = require "spec.helpers.children"
local free_port = require "spec.helpers.free_port"
local node = require "spec.helpers.node"
local wait = require "spec.helpers.wait"

local real = {}

local FOLDER <const> = uv.fs_realpath "spec/upstreams"
local MODULES <const> = FOLDER .. "/node_modules/"
local PATIENCE <const> = 30 -- seconds; a fact ends the wait at once

-- For each server: its command, the revision that it speaks, and tools that it has. `path`: of its URL; a server with
-- `chooses` takes its port from the variable PORT; one that `is_newest` is of the newest version of an SDK, whose
-- name is `sdk`; one that `is_fixture` has what sdk.mjs has.
real.servers = {}

local function add(name, words, revision, more)
  local row = {
    name = name, program = node.path, words = words, is_fixture = name:find "^sdk" ~= nil, revision = revision, tool = "echo", arguments = { text = "hi" },
    answer = "hi",
  }
  for key, value in pairs(more or {}) do row[key] = value end
  table.insert(real.servers, row)
  real.servers[name] = row
end

for version, revision in pairs { ["1.10.2"] = "2024-11-05", ["1.12.3"] = "2025-03-26", ["1.17.5"] = "2025-06-18", ["1.32.2"] = "2025-11-25" } do
  local package = version == "1.32.2" and "@modelcontextprotocol/sdk" or "sdk-" .. version:match("^%d+%.%d+"):gsub("%.", "-")
  local sdk = version == "1.32.2" and "typescript-sdk 1.32.2" or nil
  for kind, path in pairs { http = "/mcp", stdio = false, sse = sdk and "/sse" } do
    add(("sdk %s %s"):format(version, kind), { FOLDER .. "/sdk.mjs", package, kind }, revision, { path = path or nil, is_newest = sdk ~= nil, sdk = sdk })
  end
end
add("sdk 2.4.0 http", { FOLDER .. "/modern.mjs", "http" }, "2026-07-28", { path = "/mcp", is_newest = true })
add("sdk 2.4.0 stdio", { FOLDER .. "/modern.mjs", "stdio" }, "2026-07-28", { is_newest = true })

for kind, path in pairs { http = "/mcp", stdio = false } do
  add("sdk 2.4.0 of both eras " .. kind, { FOLDER .. "/sdk2.mjs", kind }, "2026-07-28", { path = path or nil, is_newest = true, sdk = "typescript-sdk 2.4.0" })
end

local everything = { arguments = { message = "hi" }, answer = "Echo: hi" }
local function more(fields)
  local row = {}
  for key, value in pairs(everything) do row[key] = value end
  for key, value in pairs(fields or {}) do row[key] = value end
  return row
end
add("everything 2025.1.14 stdio", { MODULES .. "everything-2025-1/dist/index.js" }, "2024-11-05", more())
add("everything 2026.8.31 stdio", { MODULES .. "@modelcontextprotocol/server-everything/dist/index.js", "stdio" }, "2025-11-25", more())
add("everything 2026.8.31 http", { MODULES .. "@modelcontextprotocol/server-everything/dist/index.js", "streamableHttp" }, "2025-11-25",
  more { path = "/mcp", chooses = true })
add("everything 2026.8.31 sse", { MODULES .. "@modelcontextprotocol/server-everything/dist/index.js", "sse" }, "2025-11-25",
  more { path = "/sse", chooses = true })

-- The official Python SDK, whose packages ./dev installs into a folder of their own for each version.
for _, version in ipairs { "1.30.0", "2.3.0" } do
  for kind, path in pairs { stdio = false, sse = "/sse", ["streamable-http"] = "/mcp" } do
    local revision = version == "2.3.0" and kind ~= "sse" and "2026-07-28" or "2025-11-25"
    add(("python-sdk %s %s"):format(version, kind), { FOLDER .. "/python/server.py", kind }, revision, {
      program = uv.cwd() .. "/build/python/" .. version .. "/bin/python", path = path or nil, chooses = true, is_newest = true, is_fixture = true,
      sdk = "python-sdk " .. version,
    })
  end
end

-- The official Go SDK, which ./dev builds where there is a Go.
for kind, path in pairs { stdio = false, sse = "/sse", http = "/mcp" } do
  add("go-sdk 1.8.0 " .. kind, { kind }, kind == "stdio" and "2026-07-28" or "2025-11-25", {
    program = uv.cwd() .. "/build/go/server", path = path or nil, chooses = true, is_newest = true, is_fixture = true, sdk = "go-sdk 1.8.0",
  })
end

-- The official Rust and Java SDKs, which `./dev test official` builds where there are their tools.
for kind, path in pairs { stdio = false, http = "/mcp" } do
  add("rmcp 3.11.0 " .. kind, { kind }, "2026-07-28", {
    program = uv.cwd() .. "/build/rust/release/fixture", path = path or nil, chooses = true, is_newest = true, is_fixture = true, sdk = "rmcp 3.11.0",
  })
end
for kind, path in pairs { stdio = false, sse = "/sse", http = "/mcp" } do
  add("java-sdk 2.1.0 " .. kind, { kind }, kind == "sse" and "2024-11-05" or "2025-11-25", {
    program = uv.cwd() .. "/build/java/fixture", path = path or nil, chooses = true, is_newest = true, is_fixture = true, sdk = "java-sdk 2.1.0",
  })
end

local server = {}
server.__index = server

-- The kernel's tables begin with the sockets that listen; the rest can be long.
local function is_listening(port)
  local wanted = (":%04X 0*:0000 0A "):format(port)
  for _, name in ipairs { "/proc/net/tcp", "/proc/net/tcp6" } do
    local file <close> = io.open(name)
    for line in file and file:lines() or function() end do
      if line:find(wanted) then return true end
      if line:find " %x+:%x+ %x+:%x+ %x%x " and not line:find " 0A " then break end
    end
  end
  return false
end

-- Runs a server over HTTP until the spec closes it.
local function run(self, row)
  local out, env = uv.new_pipe(false), { "PATH=" .. os.getenv "PATH", "HOME=/tmp" }
  local port = row.chooses and free_port()
  if port then env[#env + 1] = "PORT=" .. port end
  local text = ""
  local handle, pid
  handle, pid = uv.spawn(row.program, { args = row.words, stdio = { nil, out, nil }, env = env, cwd = FOLDER }, function(code)
    self.code = code
    children.alive[pid] = nil
    handle:close()
  end)
  assert(handle, pid)
  self.pid = pid
  children.alive[pid] = true
  out:read_start(function(_, bytes)
    if bytes then text = text .. bytes else out:close() end
  end)
  self.port = wait.for_fact(row.name .. " to listen", PATIENCE, function()
    if self.code then error(row.name .. " ended with " .. self.code .. ": " .. text, 0) end
    return port and is_listening(port) and port or tonumber(text:match "port (%d+)")
  end)
  self.entry = { url = ("http://127.0.0.1:%d%s"):format(self.port, row.path) }
end

function server:__close()
  if self.pid and not self.code then
    uv.kill(self.pid, "sigkill")
    wait.for_fact("the server to end", PATIENCE, function() return self.code end)
  end
end

--- Why a server cannot be tried here, for pending(); nil if it can.
function real.lacks(name)
  local program = real.servers[name].program
  if program ~= node.path and not uv.fs_stat(program) then return program .. " is not there: ./dev has said why" end
end

--- Starts a server of `real.servers` by its name. One over stdio is started by the gateway: then only `entry` is made.
function real.start(name)
  local row = assert(real.servers[name], "no such server: " .. name)
  assert(row.program ~= node.path or uv.fs_stat(MODULES), "there are no real upstreams: run `./dev test`, or `npm ci` in spec/upstreams")
  local self = setmetatable({ row = row, name = name }, server)
  if row.path then
    run(self, row)
  else
    self.entry = { command = { row.program, table.unpack(row.words) } }
  end
  return self
end

return real
