-- What the specs of listening jobs share: a job that notes its messages, and what it has noted.
local code = require "spec.helpers.code"
local wait = require "spec.helpers.wait"

local listening = {}

--- The source of a job that notes each message in the store; "gap" stands for nil. `open`: Lua that opens the server;
--- `name`: of the channel; `options` of listen; `more`: Lua that runs before.
function listening.job(open, name, options, more)
  return ([[
    local server = try(%s)
    return listen { server, %q, %s function(message, channel, call)
      %s
      local n = store.incr "n"
      store.set("seen:" .. n, (message or "gap") .. (channel and channel ~= "news" and " of " .. channel or ""))
      store.set("who", call.principal.id)
    end }]]):format(open, name, options or "", more or "")
end

--- Starts a gateway of two workers with these scripts, by the `gateway` of the library's helper.
function listening.start(library, at, scripts, more)
  local options = { workers = 2, scripts = scripts }
  for key, value in pairs(more or {}) do options[key] = value end
  return library.gateway(at, options)
end

--- The messages that the job has noted so far.
function listening.seen(me)
  return code.run(me, [[local list = json.array {} for i = 1, store.get "n" or 0 do list[i] = store.get("seen:" .. i) or "…" end return list]])
end

function listening.wait_seen(me, wanted)
  local got
  local is_there = pcall(wait.for_fact, "the messages", 20, function()
    got = listening.seen(me)
    return table.concat(got, " ") == table.concat(wanted, " ")
  end)
  if not is_there then assert.same(wanted, got) end
end

return listening
