-- A gateway whose tool `run` sends HTTP requests: `errand.start { code = "return try(http.get(args.url)).body", net = {
-- … } }`.
local gateway = require "spec.helpers.gateway"
local memory = require "spec.helpers.memory"

local errand = {}

local frame = [[return tool { "Runs.", input = { url = t.string { optional = true }, n = t.integer { optional = true } }, function(args, call)
%s
end }]]

--- The environment of a gateway that resolves names by `hosts`, with a library preloaded that is in its folder.
function errand.names(hosts)
  local folder = gateway.binary:match "^(.*)/[^/]*$"
  return {
    LD_PRELOAD = require("luv").fs_realpath(folder .. "/resolver.so"), MOONPOOL_HOSTS = hosts,
    ASAN_OPTIONS = (os.getenv "ASAN_OPTIONS" or "") .. ":verify_asan_link_order=0",
  }
end

-- `options`: code (of `run`, with args.url and args.n), net (grants), http (limits.http), constants, ca, scripts
-- (additional ones), hosts (see resolver.c), workers. Idle connections are closed at once, so that
-- assert.has_nothing_left finds none.
function errand.start(options)
  local constants = { http_idle_ms = 5 }
  for name, value in pairs(options.constants or {}) do constants[name] = value end
  local scripts = { ["tools/run.lua"] = options.code and frame:format(options.code) }
  for path, text in pairs(options.scripts or {}) do scripts[path] = text end
  return gateway.start {
    scripts = scripts, workers = options.workers or 1, constants = constants,
    env = options.hosts and errand.names(options.hosts) or memory.environment(), files = options.files,
    config = { scripts = { allow = { net = options.net } }, limits = { http = options.http }, http = options.ca and { ca = options.ca } },
  }
end

-- Runs the tool and returns its structured content, or its text; and true if it is an error.
function errand.run(me, arguments)
  local result = me:result("tools/call", { name = "run", arguments = arguments or {} })
  return result.structuredContent or result.content[1].text, result.isError
end

-- Starts the tool without waiting for its answer.
function errand.begin(me, arguments)
  return me:open("tools/call", { name = "run", arguments = arguments or {}, _meta = { progressToken = "p" } })
end

return errand
