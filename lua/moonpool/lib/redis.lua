-- The library `redis` of scripts: caches and other data in servers that speak the protocol of Redis. All tasks of a
-- worker share the connections of a cache, so that a command may not change what they are for.

local host = require "moonpool.host"
local commands = require "moonpool.lib.redis_commands"
local copied = require "moonpool.runtime.copied"
local digest = require "moonpool.lib.digest"
local failure = require "moonpool.runtime.outcome"
local grants = require "moonpool.runtime.grants"
local json = require "moonpool.json"
local members = require "moonpool.runtime.members"
local outside_hooks = require "moonpool.runtime.outside_hooks"
local problem = require "moonpool.runtime.diagnostic"
local reach = require "moonpool.lib.http.reach"
local server_url = require "moonpool.lib.server_url"
local suggest = require "moonpool.runtime.suggest"
local timed = require "moonpool.runtime.timed"
local weak = require "moonpool.runtime.weak"

local redis = {}

local DEFAULT_PORT <const> = 6379
local TIMEOUT_S <const>, MAX_TIMEOUT_S <const> = 1, 3600
local MAX_POOL <const> = 8            -- connections of one cache in a worker: one is enough unless replies are large
local MAX_DATABASE <const> = 65535
local SCAN_COUNT <const> = 100        -- keys that the server looks at for one page

local options <const> = { "user", "password", "pool", "timeout" }
local only_words <const> = { new = "NX", existing = "XX" }

-- What all scripts of a VM share: { shown, connections, timeout }, by server, user, password, pool and reach.
local by_server = setmetatable({}, weak.values)
-- { state, timeout, file } of each cache that a script holds; `file` is the script that has opened it.
local caches = setmetatable({}, weak.keys)
local measures = {}                             -- owners of time series, by command

local methods = members.of_object {}
local cache_mt = { __index = methods, __metatable = false, __name = "redis.cache" }

-- -- commands ---------------------------------------------------------------------------------------------------------

-- A word of a command as a text.
local function word_of(what, value, place)
  local kind = math.type(value)
  if kind == "integer" then return tostring(value) end
  if kind == "float" then return ("%.17g"):format(value) end
  if type(value) == "string" then return value end
  local hint = host.secret.reveal(value) and "a command may be recorded: a secret is for logging in, as in password = secret \"…\""
    or type(value) == "boolean" and "Redis has no booleans: send 1 and 0, or texts"
    or type(value) == "table" and "send json.encode(value), or the fields of a hash one by one" or "a command is a list of texts and numbers"
  local shown = value == json.null and "json.null" or host.secret.reveal(value) and "secret" or type(value)
  problem.raise(4, ("%s: word %d is a %s"):format(what, place, shown), hint)
end

-- A command of a script as a list of texts: a new one.
local function words_of(what, given, count)
  if count == 0 then problem.raise(4, what .. " needs a command", 'as in cache:call("HSET", key, field, value)') end
  local words = {}
  for i = 1, count do words[i] = word_of(what, given[i], i) end
  local why = commands.refusal(words)
  if why then problem.raise(4, ("%s: %s is refused"):format(what, words[1]:upper()), why) end
  return words
end

local function least_loaded(state)
  local best, load = state[1], host.redis.load(state[1])
  for i = 2, #state do
    local other = host.redis.load(state[i])
    if other < load then best, load = state[i], other end
  end
  return best
end

local function send_now(own, requests, operation)
  local owner = measures[operation]
  if not owner then
    owner = {}
    measures[operation] = owner
  end
  local measured <close> = timed.start(owner, "redis", operation)
  local done, value, reason
  if redis.stand_in then
    done, value, reason = redis.stand_in(requests)
  else
    local state = own.state
    done, value, reason = host.redis.send(#state > 1 and least_loaded(state) or state[1], requests, own.timeout, operation, own.file)
  end
  measured.outcome = done and "ok" or reason
  return done, value, reason
end

-- Sends requests: true and the reply, or the list of replies; or nil, why, reason.
local function send(own, requests, operation)
  local watch = outside_hooks.redis
  if not watch then return send_now(own, requests, operation) end
  return watch(own.state.shown, requests, function() return send_now(own, requests, operation) end)
end

local function own_of(self, what)
  return caches[self] or problem.raise(3, what .. " is a method of a cache", "as in cache:" .. what .. "(…)")
end

-- Sends one request and returns its reply.
local function ask(own, words)
  local done, value, reason = send(own, { words }, commands.shown(words[1]))
  if done then return value end
  return nil, value, reason
end

--- call(command, …): the reply of one command; or nil, why, reason.
function methods:call(...)
  return ask(own_of(self, "call"), words_of("call", { ... }, select("#", ...)))
end

--- get(key): the text at a key; nil if there is none; or nil, why, reason.
function methods:get(key)
  return ask(own_of(self, "get"), words_of("get", { "GET", key }, 2))
end

-- The words of SET for the options.
local function set_words(key, value, given)
  local words = { "SET", key, value }
  if given == nil then return words end
  if type(given) ~= "table" then problem.raise(3, "set: options must be a table", 'as in { ttl = 60, only = "new" }') end
  given = copied(given)
  for name in next, given do
    if name ~= "ttl" and name ~= "only" then
      problem.raise(3, "set has no option '" .. tostring(name) .. "'", suggest.hint(tostring(name), { "ttl", "only" }) or "its options are ttl and only")
    end
  end
  if given.ttl ~= nil then
    if type(given.ttl) ~= "number" or not (given.ttl >= 0.001 and given.ttl < 2 ^ 40) then
      problem.raise(3, "set: 'ttl' must be a number of seconds, from 0.001 on")
    end
    words[4], words[5] = "PX", (given.ttl * 1000) // 1 | 0
  end
  if given.only ~= nil then
    words[#words + 1] = only_words[given.only] or problem.raise(3, "set: 'only' must be \"new\" or \"existing\"")
  end
  return words
end

--- set(key, value [, { ttl = seconds, only = "new" | "existing" }]): true; false if `only` has prevented it; or nil,
--- why, reason.
function methods:set(key, value, given)
  local own = own_of(self, "set")
  local words = set_words(key, value, given)
  words = words_of("set", words, #words > 3 and #words or 3)
  local done, reply, reason = send(own, { words }, "SET")
  if not done then return nil, reply, reason end
  return reply ~= nil
end

-- The commands of a pipeline or a transaction as lists of texts.
local function requests_of(what, list)
  if type(list) ~= "table" then
    problem.raise(3, ("%s needs a list of commands, got a %s"):format(what, type(list)), ('as in cache:%s { {"INCR", key}, {"EXPIRE", key, 60} }'):format(what))
  end
  local requests = {}
  for i, given in ipairs(copied(list)) do
    if type(given) ~= "table" then
      problem.raise(3, ("%s: command %d is a %s"):format(what, i, type(given)), 'a command is a list, as {"INCR", key}')
    end
    given = copied(given)
    requests[i] = words_of(what, given, #given)
  end
  return requests
end

--- pipeline { {"INCR", key}, {"EXPIRE", key, 60} }: sends the commands together: the list of their replies, in which an
--- error is { error = why } and nil is json.null; or nil, why, reason.
function methods:pipeline(list)
  local own = own_of(self, "pipeline")
  local requests = requests_of("pipeline", list)
  if #requests == 0 then return json.array {} end
  local done, replies, reason = send(own, requests, #requests == 1 and commands.shown(requests[1][1]) or "PIPELINE")
  if #requests > 1 then
    if done then return replies end
    return nil, replies, reason
  end
  if done then return json.array { replies == nil and json.null or replies } end
  if reason == "error" then return json.array { { error = replies } } end
  return nil, replies, reason
end

--- transaction { {"INCR", key}, {"EXPIRE", key, 60} }: the same as one step, between whose commands the server runs no
--- others: the list of their replies; or nil, why, reason.
function methods:transaction(list)
  local own = own_of(self, "transaction")
  local requests = requests_of("transaction", list)
  if #requests == 0 then return json.array {} end
  table.insert(requests, 1, { "MULTI" })
  requests[#requests + 1] = { "EXEC" }
  local done, replies, reason = send(own, requests, "TRANSACTION")
  if not done then return nil, replies, reason end
  local results = replies[#requests]
  if type(results) == "table" and not results.error then return results end
  for i = 1, #replies do    -- the first command that the server has refused is why all are dropped
    local refused = type(replies[i]) == "table" and replies[i].error
    if refused then return nil, refused, "error" end
  end
  return nil, "the server has dropped the transaction", "error"
end

local function texts_of(what, name, list)
  if list == nil then return {} end
  if type(list) ~= "table" then problem.raise(3, ("%s: the %s must be a list, not a %s"):format(what, name, type(list))) end
  return copied(list)
end

--- eval(script, keys, args): runs Lua in the server, which has it under its hash from the second time on: its result; or
--- nil, why, reason.
function methods:eval(script, keys, args)
  local own = own_of(self, "eval")
  if type(script) ~= "string" then
    problem.raise(2, "eval needs a script, got a " .. type(script), 'as in cache:eval("return redis.call(\'INCR\', KEYS[1])", { key })')
  end
  keys, args = texts_of("eval", "keys", keys), texts_of("eval", "arguments", args)
  local words = { "EVALSHA", digest.sha1(script), #keys }
  table.move(keys, 1, #keys, 4, words)
  table.move(args, 1, #args, 4 + #keys, words)
  words = words_of("eval", words, 3 + #keys + #args)
  local done, reply, reason = send(own, { words }, "EVALSHA")
  if not done and reason == "error" and reply:find "^NOSCRIPT" then
    words[1], words[2] = "EVAL", script
    done, reply, reason = send(own, { words }, "EVAL")
  end
  if done then return reply end
  return nil, reply, reason
end

--- scan(pattern [, { count =, type = }]): iterates over the keys that match, some at a time; a key may come twice.
--- Raises a failure where the server cannot be asked.
function methods:scan(pattern, given)
  local own = own_of(self, "scan")
  if pattern ~= nil and type(pattern) ~= "string" then problem.raise(2, "scan needs a pattern, got a " .. type(pattern), 'as in cache:scan "user:*"') end
  given = given == nil and {} or type(given) == "table" and copied(given) or problem.raise(2, "scan: options must be a table", "as in { count = 100 }")
  for name in next, given do
    if name ~= "count" and name ~= "type" then
      problem.raise(2, "scan has no option '" .. tostring(name) .. "'", suggest.hint(tostring(name), { "count", "type" }) or "its options are count and type")
    end
  end
  local words = { "SCAN", "0", "MATCH", pattern or "*", "COUNT", given.count or SCAN_COUNT }
  if given.type ~= nil then words[7], words[8] = "TYPE", given.type end
  words = words_of("scan", words, #words)
  local page, at = {}, 0
  return function()
    while at == #page do
      if not words then return nil end
      local reply, why = ask(own, words)
      if type(reply) ~= "table" or type(reply[1]) ~= "string" or type(reply[2]) ~= "table" then
        failure.fail(why or "the server's reply to SCAN is no page of keys")
      end
      page, at = reply[2], 0
      words[2] = reply[1]
      if reply[1] == "0" then words = nil end
    end
    at = at + 1
    return page[at]
  end
end

-- What a listening job takes its messages from: those of a channel, or of the channels of a pattern.
function cache_mt.__listen(cache, channel, given)
  local state = caches[cache].state
  return host.redis.channel(state[1], channel, given.pattern == true), channel .. " at " .. state.shown
end

-- -- opening ----------------------------------------------------------------------------------------------------------

-- The parts of a URL: { tls, host, port, database, shown }; nil, why, hint.
local function parse(text)
  if type(text) ~= "string" then return nil, "redis.open needs a URL", 'as in redis.open { "redis://127.0.0.1:6379/0" }' end
  local scheme, place, path = text:match "^(%a+)://([^/?#]*)(.*)$"
  scheme = scheme and scheme:lower()
  if scheme ~= "redis" and scheme ~= "rediss" then
    return nil, "redis.open: the URL must begin with redis:// or rediss://", "rediss:// is TLS; as in \"rediss://cache.internal:6379/0\""
  end
  if place:find "@" then
    return nil, "redis.open: the URL must not have a user or a password", 'they are options: user = "app", password = secret "REDIS_PASSWORD"'
  end
  local server, wrong = server_url.place("redis.open", place, DEFAULT_PORT)
  if not server then return nil, wrong or "redis.open: the URL has no host", not wrong and "as in \"redis://cache.internal:6379/0\"" or nil end
  server.tls = scheme == "rediss"
  server.database = path == "" and 0 or path == "/" and 0 or math.tointeger(tonumber(path:match "^/(%d%d?%d?%d?%d?)$"))
  if not server.database or server.database > MAX_DATABASE then
    return nil, "redis.open: after the host, the URL has the number of the database at most", "as in \"redis://cache.internal:6379/0\""
  end
  return server
end

local function check_options(given)
  if type(given) == "string" then given = { given } end
  if type(given) ~= "table" then problem.raise(2, "redis.open needs a table", 'as in redis.open { "redis://127.0.0.1:6379/0" }') end
  given = copied(given)
  for name in next, given do
    if name ~= 1 and not (function() for _, known in ipairs(options) do if known == name then return true end end end)() then
      problem.raise(2, "redis.open has no option '" .. tostring(name) .. "'", suggest.hint(tostring(name), options)
        or "its options are the URL, user, password, pool and timeout")
    end
  end
  return given
end

-- The connections for these options, which all scripts of the VM with the same ones share.
local function share(server, pool, file)
  local key = table.concat({ server.place, tostring(server.tls), server.database, server.reach, pool, #server.user, server.user, server.password }, "\0")
  local state = by_server[key]
  if not state then
    state = { shown = server.place }
    server.script, server.lists = file, debug.getmetatable(json.array {})
    for i = 1, pool do state[i] = host.redis.connection(server) end
    by_server[key] = state
  end
  return state
end

--- The library of one script file. `granted` is what grants.of(path) gives.
function redis.library(granted, file)
  local library, allowed = {}, {}
  for _, text in ipairs(granted.net) do allowed[#allowed + 1] = reach.parse(text) end

  --- open { url, user =, password =, pool =, timeout = }: a cache; or nil, why. Connects with the first command.
  function library.open(given)
    given = check_options(given)
    local server, wrong, hint = parse(given[1])
    if not server then problem.raise(1, wrong, hint) end
    server.user = server_url.text("redis.open", given, "user", "REDIS_PASSWORD")
    server.password = server_url.text("redis.open", given, "password", "REDIS_PASSWORD")
    if server.user ~= "" and server.password == "" then problem.raise(1, "redis.open: a 'user' needs a 'password'") end
    local pool = server_url.number("redis.open", given, "pool", 1, 1, MAX_POOL) // 1 | 0
    local timeout = server_url.number("redis.open", given, "timeout", TIMEOUT_S, 0.001, MAX_TIMEOUT_S)
    server.reach = reach.find(allowed, server)
    if not server.reach then
      host.log.write("warn", "redis refused", { file = file, host = server.place, why = "no grant", grant = grants.yaml("net", server.place, file) })
      return nil, grants.refusal("net", server.place, file)
    end
    local cache = setmetatable({}, cache_mt)
    caches[cache] = { state = share(server, pool, file), timeout = timeout, file = file }
    return cache
  end
  return library
end

return redis
