-- Functions for specs: `call`, `read` and `get_prompt` use scripts as a client does; `run_job`, `run_due_jobs`,
-- `run_policy` and `authenticate` run scripts that clients do not call.

local client_request = require "moonpool.calls.client_request"
local auth = require "moonpool.access.auth"
local explain = require "moonpool.registry.explain"
local failure = require "moonpool.runtime.outcome"
local fakes = require "moonpool.specs.fakes"
local host = require "moonpool.host"
local job = require "moonpool.things.job"
local json = require "moonpool.json"
local policy = require "moonpool.things.policy"
local principal = require "moonpool.access.principal"
local problem = require "moonpool.runtime.diagnostic"
local schedule = require "moonpool.specs.schedule"
local suggest = require "moonpool.runtime.suggest"

local function plain(value, example)
  if value == nil then return json.object {} end
  if type(value) ~= "table" then problem.raise(3, "the arguments must be a table, got a " .. type(value), "as in " .. example) end
  return json.object(json.decode(json.encode(value)))
end

local function texts(content)
  local found = {}
  for _, item in ipairs(content or {}) do found[#found + 1] = item.text or item.resource and item.resource.text end
  return table.concat(found, "\n")
end

-- The principal that `as` describes: an id, or { id, scopes, claims }.
local function principal_of(as)
  if as == nil then return nil end
  if as == "anonymous" then return principal.anonymous end
  if as == "local" then return principal.lone end
  if type(as) == "string" then as = { id = as } end
  local made, why = principal.new(as, auth.declared())
  if not made then problem.raise(4, "'as': " .. why, "as in call(\"name\", {}, { as = { id = \"ann\", scopes = { \"orders:read\" } } })") end
  return made
end

local function options_of(given)
  for name in pairs(given or {}) do
    if name ~= "as" then problem.raise(4, "there is no option '" .. tostring(name) .. "'", "the only option is 'as', a principal") end
  end
  return principal_of(given and given.as)
end

local function find(word, things, name)
  local found = things[name]
  if found then return found end
  problem.raise(3, "there is no " .. word .. " '" .. tostring(name) .. "'", suggest.hint(tostring(name), things)
    or "its name is its file's path below the folder")
end

-- The result of a script's function; or nil, why.
local function outcome(ok, value, why, ...)
  if ok then return value, why, ... end
  if failure.is_expected(value) then return nil, failure.reason(value) end
  if failure.is_refused(value) then return nil, failure.reason(value) end
  error(value, 0)
end

--- Makes the functions for the request `call` in the revision that `row` describes.
return function(call, row)
  local made = {}

  -- Runs f while the call has the principal `who`; nil stands for the user who runs the specs, who has all scopes.
  local function as(who, f)
    host.call.set_principal(call, who)
    local back <close> = setmetatable({}, { __close = function() host.call.set_principal(call, nil) end })      -- luacheck: ignore 211
    return f()
  end

  local function ask(method, params, who)
    client_request.forget(call)
    return as(who, function()
      return fakes.maybe_cancel(function()
        local result, err = row.methods[method].run(call, params, row)
        if not result then return nil, err.message end
        return json.decode(json.encode(result))
      end)
    end)
  end

  --- call(name, arguments [, { as = principal }]): { text, structured, content }; or nil and the reason that the model
  --- would read.
  function made.call(name, arguments, options)
    local result, why = ask("tools/call", { name = name, arguments = plain(arguments, 'call("greet", { name = "Ann" })') }, options_of(options))
    if not result then return nil, why end
    if result.isError then return nil, texts(result.content) end
    return { text = texts(result.content), structured = result.structuredContent, content = result.content }
  end

  --- read(uri [, { as }]): { text, contents }; or nil and why.
  function made.read(uri, options)
    local result, why = ask("resources/read", { uri = uri }, options_of(options))
    if not result then return nil, why end
    return { text = result.contents[1] and result.contents[1].text, contents = result.contents }
  end

  --- get_prompt(name, arguments [, { as }]): the messages; or nil and why.
  function made.get_prompt(name, arguments, options)
    local result, why = ask("prompts/get", { name = name, arguments = plain(arguments, 'get_prompt("tidy", { style = "kind" })') }, options_of(options))
    if not result then return nil, why end
    return result.messages
  end

  --- run_job(name [, message, channel]): true and the value that the job returned; or nil and why it failed. A job that
  --- listens gets the message; nil stands for messages that were missed.
  function made.run_job(name, message, channel)
    local one = find("job", job.all(), name)
    local ok, value, why = job.start(one, call, message, channel)
    value, why = outcome(ok, value, why)
    if value == nil and why ~= nil then return nil, failure.words(why) end
    return true, value
  end

  --- due_jobs(): the names of the jobs that are due at the time of fake.time, sorted.
  function made.due_jobs() return schedule.due "due_jobs" end

  --- run_due_jobs(): runs the due jobs, each once, and returns a list of { name, done, value } or { name, why }.
  function made.run_due_jobs()
    local results = {}
    for i, name in ipairs(schedule.due "run_due_jobs") do
      schedule.begin(name)
      local done, value = made.run_job(name)
      results[i] = done and { name = name, done = true, value = value } or { name = name, why = value }
    end
    return results
  end

  --- run_policy(name, { tool | resource | prompt, args, as }, answer): the policy's result for a call whose handler is
  --- `answer(args)`; or nil and why.
  function made.run_policy(name, about, answer)
    local rows = {}
    for _, one in ipairs(policy.of()) do rows[one.name] = one end
    local one = find("policy", rows, name)
    if type(about) ~= "table" or type(answer) ~= "function" then
      problem.raise(2, "run_policy takes a name, a table that describes the call, and a handler",
        "as in run_policy(\"log\", { tool = \"greet\", args = {} }, function() return \"hi\" end)")
    end
    return as(principal_of(about.as), function() return outcome(xpcall(policy.try, failure.handler, one, call, about, answer)) end)
  end

  --- authenticate { headers, bearer, … }: the principal that the auth scripts give the request, { id, scopes, claims };
  --- or nil and why.
  function made.authenticate(request)
    local whole = { method = "POST", path = "/mcp", headers = {}, peer = "127.0.0.1" }
    for name, value in pairs(request or {}) do whole[name] = value end
    whole.address = whole.address or whole.peer
    whole.headers = setmetatable({}, explain.any_case)
    for name, value in pairs(request and request.headers or {}) do whole.headers[name:lower()] = value end
    local bearer = whole.headers.authorization and whole.headers.authorization:match "^[Bb][Ee][Aa][Rr][Ee][Rr] +(%S+)$"
    whole.bearer = whole.bearer or bearer
    local first
    for _, one in ipairs(auth.all()) do
      local value, why = outcome(xpcall(one.handler, failure.handler, whole))
      if value then
        local p, trouble = principal.new(value, one.from)
        if not p then problem.raise(2, one.path .. ": " .. trouble) end
        return p
      end
      first = first or why
    end
    return nil, first and failure.words(first) or auth.all()[1] and "no auth script authenticates the request" or "there are no auth scripts"
  end

  return made
end
