-- A gateway whose tool `run` has only the grants of a spec: `granted.start { code = "return { text = fs.read(args.path)
-- }", allow = { read = { "data" } } }`.
local gateway = require "spec.helpers.gateway"
local assert = require "spec.helpers.asserts"
local memory = require "spec.helpers.memory"

local granted = {}

local frame = [[return tool { "Runs.", input = { path = t.string { optional = true }, text = t.string { optional = true },
  n = t.integer { optional = true } }, function(args, call)
%s
end }]]

-- `options`: code (of `run`), allow and grants (scripts.allow, scripts.grants), limits, scripts (additional ones),
-- files, env, workers.
function granted.start(options)
  local scripts = { ["tools/run.lua"] = options.code and frame:format(options.code) }
  for path, text in pairs(options.scripts or {}) do scripts[path] = text end
  local env = memory.environment() or {}
  for name, value in pairs(options.env or {}) do env[name] = value end
  return gateway.start {
    constants = options.constants,
    scripts = scripts, workers = options.workers or 1, env = env, files = options.files,
    config = { scripts = { allow = options.allow, grants = options.grants }, limits = options.limits },
  }
end

--- Returns the source of a tool with this body, for `scripts`.
function granted.tool(code) return frame:format(code) end

--- Runs a tool and returns its structured content, or its text; and true if it is an error.
function granted.run(me, arguments, name)
  local result = me:result("tools/call", { name = name or "run", arguments = arguments or {} })
  return result.structuredContent or result.content[1].text, result.isError
end

--- Starts the tool without waiting for its answer.
function granted.begin(me, arguments)
  return me:open("tools/call", { name = "run", arguments = arguments or {}, _meta = { progressToken = "p" } })
end

--- Runs the tool in a gateway started for this call, checks that nothing is left in it, and returns the tool's result.
function granted.once(options, arguments)
  local g <close> = granted.start(options)
  local me = g:client "2026-07-28"
  local got = granted.run(me, arguments)
  me:close()
  assert.has_nothing_left(g)
  return got
end

return granted
