-- The scripts that `moonpool new` writes. Each can be served unchanged, and is an example to extend.

local templates = {}

templates.tool = [[
-- A tool: a function that the model may call. Its name is this file's path below tools/.
return tool {
  "Say what this does, in a sentence the model reads before it decides to call it.",
  input = {
    name = t.string { "Whom it is about", min = 1, max = 100 },
    times = t.integer { "How often", min = 1, max = 10, default = 1 },
  },
  read_only = true,       -- the tool changes nothing, so clients may call it without asking the user
  function(args, call)
    local lines = {}
    for i = 1, args.times do
      call:progress(i, args.times)
      lines[i] = "Hello, " .. args.name .. "!"
    end
    return table.concat(lines, "\n")   -- text; a table would be structured content; nil, "why" is a failure the model reads
  end,
}
]]

templates.resource = [[
-- A resource: a document that clients may read. A name in braces is a value that the handler gets; without braces it is
-- one fixed document.
return resource {
  "Say what can be read here.",
  uri = "example://@NAME@/{id}",
  mime = "application/json",
  complete = { id = { "1", "2" } },     -- completions that clients may offer while the user types
  function(vars)
    if not vars.id:find "^%d+$" then return nil end   -- nil: not found
    return { id = math.tointeger(vars.id), title = "The title of " .. vars.id }
  end,
}
]]

templates.prompt = [[
-- A prompt: a text that the user picks and sends to the model.
return prompt {
  "Say what it asks the model to do.",
  args = {
    subject = t.string "What it is about",
    tone = t.string { "How it should sound", complete = { "brief", "friendly", "formal" }, default = "brief" },
  },
  function(args)
    return { user("Write about " .. args.subject .. ". Keep it " .. args.tone .. ".") }
  end,
}
]]

templates.job = [[
-- A job: a function that runs at an interval, on one worker, never twice at once.
return job {
  "Say what it does.",
  every = 1 * minutes, timeout = 10 * seconds,
  function()
    local count = try(store.incr "@NAME@:runs")     -- the store is shared by all workers
    log.info("@NAME@ ran", { count = count })
    -- resource_updated "example://@NAME@/1" notifies the clients that subscribed to that resource
  end,
}
]]

templates.lib = [[
-- Code that several scripts share: `local @ID@ = require "@NAME@"` returns the value of this file. It runs with the
-- grants of its own file.
local @ID@ = {}

--- A name with single spaces and none at its ends.
---@param name string
---@return string
function @ID@.tidy(name)
  return (name:gsub("^%s+", ""):gsub("%s+$", ""):gsub("%s+", " "))
end

return @ID@
]]

templates.policy = [[
-- A policy: a function around all calls, or around those that it names. It may refuse a call, change arguments and
-- results, or answer itself.
return policy {
  "Say what it is for.",
  -- tools = { "search_*" },           -- only around these; resources = { "orders://*" } and prompts are possible, too
  function(call, next)
    -- if call.args.repo == "internal/keys" then fail "that repository is not served here" end
    local began = time.monotonic()
    local value, why = next(call)      -- runs the next policy, and finally the tool; without this call neither runs
    log.info("called", { tool = call.name, who = tostring(call.principal), seconds = time.monotonic() - began })
    return value, why
  end,
}
]]

templates.auth = [[
-- Authenticates every request. See docs/explanation/authentication.md, which has one-line scripts for keys, tokens and
-- proxies.
local names = {
  -- The SHA-256 of each key and its owner, so that no key is in this file:  moonpool key new NAME  prints both
  -- ["2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"] = "ann",
}

return auth {
  function(request)
    local key = try(request.headers["x-api-key"], "an API key is needed: the header x-api-key")
    local name = try(names[digest.sha256(key)], "unknown API key")
    return { id = name, scopes = {} }
  end,
}
]]

return templates
