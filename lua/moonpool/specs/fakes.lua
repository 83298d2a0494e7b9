-- The library `fake` of specs: fakes of the time, of HTTP servers, of the machine and of the user's answers. Load this
-- module before modules that keep references to the functions that it and `clock` replace.

local clock = require "moonpool.specs.clock"
local machine = require "moonpool.specs.machine"
local servers = require "moonpool.specs.servers"

local fakes = { fake = {} }
local fake = fakes.fake

local host = require "moonpool.host"
local json = require "moonpool.json"
local sorted = require "moonpool.runtime.sorted_keys"

local answers
local cancel_at, is_cancelling

-- Counts the use of a fake as a wait for fake.cancel, although a fake takes no time.
local function waiting(stand_in)
  return function(...)
    if is_cancelling then clock.pause() end
    return stand_in(...)
  end
end

local function need_table(word, given, what)
  if type(given) ~= "table" then error("fake." .. word .. " needs a table of " .. what .. ", got a " .. type(given), 3) end
end

--- fake.time(seconds): sets every clock to a time in seconds since 1970; sleep() advances the clocks and returns at
--- once.
function fake.time(seconds)
  if type(seconds) ~= "number" then error("fake.time needs seconds since 1970, as os.time { year = 2026, month = 1, day = 1 } gives", 2) end
  clock.set(seconds)
  require "moonpool.specs.schedule".set(seconds)
end

--- fake.http { ["GET https://…"] = answer }: a text, a status, { status, headers, body | json | events | chunks, after
--- }, or a function of the request that returns one of them, or nil and why. Returns the list of later requests.
function fake.http(served)
  need_table("http", served, "answers by URL")
  local stand_in, asked = servers.new(served)
  require "moonpool.lib.http".stand_in = waiting(stand_in)
  return asked
end

--- fake.env { NAME = "value" }: fakes the variables that `env` reads; false stands for a variable that is not set.
function fake.env(given)
  need_table("env", given, "values by name")
  require "moonpool.lib.env".stand_ins.env = machine.variables("env", given)
end

--- fake.secret { NAME = "value" }: fakes the variables that `secret` reads.
function fake.secret(given)
  need_table("secret", given, "values by name")
  require "moonpool.lib.env".stand_ins.secret = machine.variables("secret", given)
end

--- fake.exec { ["git log"] = answer }: by the command line or its beginning: its output, its status, { status, signal,
--- stdout, stderr }, or a function of { argv, stdin, env, cwd } that returns one of them, or nil and why. Returns the
--- list of later commands.
function fake.exec(given)
  need_table("exec", given, "answers by command")
  local stand_in, ran = machine.programs(given)
  require "moonpool.lib.exec".stand_in = waiting(stand_in)
  return ran
end

--- fake.fs { ["data/prices.csv"] = "…" }: replaces the file system by these files. Returns the table of files, with
--- what scripts write.
function fake.fs(given)
  need_table("fs", given or {}, "texts by path")
  local stand_in, files = machine.files(given or {})
  require "moonpool.lib.fs".stand_in = waiting(stand_in)
  return files
end

--- fake.redis { ["GET user:1"] = "Ann" }: by the command or its beginning: a text, a number, a list, false for nil, {
--- error = why }, or a function of the command, a list of texts, that returns one of them, or nil and why. Returns the
--- list of later commands.
function fake.redis(given)
  need_table("redis", given, "replies by command")
  local stand_in, sent = machine.redis(given)
  require "moonpool.lib.redis".stand_in = waiting(stand_in)
  return sent
end

--- fake.postgres { ["select name"] = { { name = "Ann" } }, update = 1 }: by the statement or its beginning: a list of rows,
--- the number of changed rows, { error = why, state = }, or a function of the SQL and its parameters that returns one of
--- them. Returns the list of the statements that are sent from now on.
function fake.postgres(given)
  need_table("postgres", given, "results by statement")
  local stand_in, sent = machine.postgres(given)
  require "moonpool.lib.postgres".stand_in = waiting(stand_in)
  return sent
end

-- The value of a faked call, read or prompt, from the spec's value for its name: a text, or a value that becomes JSON.
local function upstream_value(what, given)
  local is_text = type(given) ~= "table"
  local text = is_text and tostring(given) or json.encode(given)
  if what == "read" then return { text = text, contents = json.array { { text = text } } } end
  if what == "prompt" then return { text = text, messages = json.array { { role = "user", content = { type = "text", text = text } } } } end
  local result = { content = json.array { { type = "text", text = text } } }
  if not is_text then result.structuredContent = given end
  return require "moonpool.upstream.script_handle".result_of(result)
end

--- fake.upstream("github", { search_issues = answer }): fakes an upstream for `upstream "github"`, by the names of its
--- tools and prompts and by the URIs of its resources: a text, a table, or a function of the arguments that returns one
--- of them, or nil and why. Returns the list of later calls.
function fake.upstream(name, given)
  if type(name) ~= "string" then error("fake.upstream needs the name of an upstream, got a " .. type(name), 2) end
  need_table("upstream", given, "answers by name")
  local asked = {}
  require "moonpool.upstream.script_handle".stand_ins[name] = waiting(function(what, called, args)
    asked[#asked + 1] = { method = what, name = called, args = args }
    local answer = given[called]
    if answer == nil then return nil, ("upstream '%s' has no '%s': fake.upstream has no answer for it"):format(name, called) end
    if type(answer) ~= "function" then return upstream_value(what, answer) end
    local value, why = answer(args)
    if value == nil then return nil, why or ("the function for '%s' in fake.upstream returned nothing"):format(called) end
    return upstream_value(what, value)
  end)
  return asked
end

--- fake.metrics(): takes the numbers that scripts add to their metrics. Returns the list of later ones: { name, value,
--- labels }.
function fake.metrics()
  local added = {}
  require "moonpool.lib.metrics".stand_in = function(name, value, labels) added[#added + 1] = { name = name, value = value, labels = labels } end
  return added
end

-- -- a user ------------------------------------------------------------------------------------------------------------

--- fake.answers { key = value }: the answer of call:elicit for a key; false declines, a missing key cancels. For
--- call:sample a string, for call:roots a list.
function fake.answers(given)
  need_table("answers", given, "answers by key")
  answers = given
end

local function raw(asked, given)
  if asked.method == "sampling/createMessage" then
    return type(given) == "table" and given or { role = "assistant", model = "fake", content = { type = "text", text = given } }
  elseif asked.method == "roots/list" then
    return { roots = given }
  elseif given == false then
    return { action = "decline" }
  end
  return { action = "accept", content = type(given) == "table" and given or nil }
end

--- fake.cancel(wait): cancels the next call, read or get_prompt at its first wait, or at wait number `wait`, as a
--- client would.
function fake.cancel(wait)
  if wait == nil then wait = 1 end
  if math.type(wait) ~= "integer" or wait < 1 then error("fake.cancel needs the number of a wait, from 1 on", 2) end
  cancel_at = wait
end

--- Returns the result of ask(); or nil, "cancelled" if fake.cancel cancels it. ask() runs in a task of its own, which
--- is cancelled like the call of a client: its `<close>` handlers run with the usual limits, and their errors are
--- logged.
function fakes.maybe_cancel(ask)
  if not cancel_at then return ask() end
  local at, outcome = cancel_at, nil
  cancel_at, is_cancelling = nil, true
  host.task.parallel { function()
    host.task.cancel_at(at)
    outcome = table.pack(pcall(ask))
    host.task.cancel_at(0)
    return true
  end }
  is_cancelling = false
  if not outcome then return nil, "cancelled" end
  if not outcome[1] then error(outcome[2], 0) end
  return outcome[2], outcome[3]
end

--- Answers the questions of a call in place of a client.
function fakes.ask(open, found, whys)
  for key, asked in pairs(open) do
    local given = answers and answers[key]
    if given == nil then
      whys[key] = "cancelled"
    else
      found[key], whys[key] = asked.read(raw(asked, given))
    end
  end
end

-- Indexing `fake` with an unknown name is an error that lists the known names.
setmetatable(fake, { __metatable = false, __index = function(_, name)
  local hint = require("moonpool.runtime.suggest").listed(tostring(name), fakes.names(), "fakes")
  require("moonpool.runtime.diagnostic").raise(2, "there is no fake." .. tostring(name), hint)
end })

--- The names of the fakes, sorted.
function fakes.names() return sorted(fake) end

--- Removes all fakes.
function fakes.reset()
  cancel_at, is_cancelling = nil, false
  answers = nil
  clock.reset()
  require "moonpool.specs.schedule".reset()
  require "moonpool.lib.http".stand_in = nil
  require "moonpool.lib.env".stand_ins = {}
  require "moonpool.lib.exec".stand_in = nil
  require "moonpool.lib.fs".stand_in = nil
  require "moonpool.lib.redis".stand_in = nil
  require "moonpool.lib.postgres".stand_in = nil
  require "moonpool.lib.metrics".stand_in = nil
  require "moonpool.upstream.script_handle".stand_ins = {}
end

return fakes
