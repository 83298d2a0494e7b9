-- The library `postgres` of scripts: databases in PostgreSQL servers. Each worker has a few connections to a database,
-- which its tasks take turns with: one statement, or one transaction, at a time.

local host = require "moonpool.host"
local copied = require "moonpool.runtime.copied"
local failure = require "moonpool.runtime.outcome"
local frozen = require "moonpool.runtime.frozen"
local grants = require "moonpool.runtime.grants"
local json = require "moonpool.json"
local members = require "moonpool.runtime.members"
local outside_hooks = require "moonpool.runtime.outside_hooks"
local paths = require "moonpool.runtime.paths"
local problem = require "moonpool.runtime.diagnostic"
local reach = require "moonpool.lib.http.reach"
local server_url = require "moonpool.lib.server_url"
local suggest = require "moonpool.runtime.suggest"
local timed = require "moonpool.runtime.timed"
local values = require "moonpool.lib.postgres_values"
local weak = require "moonpool.runtime.weak"

local postgres = {}

local DEFAULT_PORT <const> = 5432
local POOL <const>, MAX_POOL <const> = 4, 32         -- connections of one database in a worker: each is a process of the server
local TIMEOUT_S <const>, MAX_TIMEOUT_S <const> = 30, 3600
local GRACE_S <const> = 1                            -- for which the server's own end of a statement is awaited
local FETCH <const>, MAX_FETCH <const> = 500, 10000  -- rows that each() takes at once
local MAX_SQL_BYTES <const> = 1 << 20
local MAX_RETRIES <const> = 10

local open_options <const> = { "user", "password", "pool", "timeout", "prepare", "tls", "socket" }
local known <const> = { user = true, password = true, pool = true, timeout = true, prepare = true, tls = true, socket = true }
local isolations <const> = { ["read committed"] = true, ["repeatable read"] = true, serializable = true }
local repeatable <const> = { ["40001"] = true, ["40P01"] = true }   -- the server asks for the transaction once more

-- What all scripts of a VM share: { pool, shown, timeout }, by all options.
local by_server = setmetatable({}, weak.values)
local states = setmetatable({}, weak.keys)      -- of each database and transaction that a script holds
local leases = setmetatable({}, weak.keys)      -- of each transaction: its attempt { lease, tx, last = { state = SQLSTATE of its last failure } }

local methods, inside, piped = members.of_object {}, members.of_object {}, members.of_object {}
local database_mt = { __index = methods, __metatable = false, __name = "postgres.database" }
local transaction_mt = { __index = inside, __metatable = false, __name = "postgres.transaction" }
local pipeline_mt = { __index = piped, __metatable = false, __name = "postgres.pipeline" }

-- -- failures ---------------------------------------------------------------------------------------------------------

local kind_of_failure = { name = "postgres.failure", what = "an error", tostring = function(content) return content.why end }
local function joined(a, b) return tostring(a) .. tostring(b) end

-- The value `why` of a failure: a text for tostring, with the fields why, reason and state.
local function failed(why, reason, state)
  local value = frozen.new(kind_of_failure, { why = why, reason = reason, state = state })
  debug.getmetatable(value).__concat = joined
  return value
end

-- -- statements -------------------------------------------------------------------------------------------------------

local ending <const> = "postgres.open gives connections that are used by others next: use db:transaction(function(tx) … end), which ends by itself"
local session <const> = "it would hold for whoever has the connection next: %s"
local refused <const> = {
  BEGIN = ending, START = ending, COMMIT = ending, END = ending, ABORT = ending, ROLLBACK = ending,
  PREPARE = "statements are prepared by themselves", EXECUTE = "statements are prepared by themselves", DEALLOCATE = "statements are prepared by themselves",
  SET = session:format "'set local' within a transaction", RESET = session:format "'set local' within a transaction",
  DISCARD = session:format "there is nothing to discard",
  LISTEN = session:format 'a file of scripts/jobs listens: return listen { db, "channel", function(payload) … end }',
  UNLISTEN = session:format "'listen' is refused as well", COPY = "rows go by insert and select", DECLARE = "db:each takes rows one after another",
}

-- First words of statements that leave nothing in the session of their connection, and what does in these.
local harmless <const> = {}
for word in ("SELECT INSERT UPDATE DELETE MERGE WITH VALUES TABLE SAVEPOINT RELEASE ROLLBACK LOCK SET NOTIFY TRUNCATE SHOW"):gmatch "%a+" do
  harmless[word] = true
end
local lasting <const> = { "set_config", "advisory", "temp" }

local function leaves_something(word, sql)
  if not harmless[word] then return true end
  local text = sql:lower()
  for _, name in ipairs(lasting) do
    if text:find(name, 1, true) then return true end
  end
  return false
end

-- The text behind the comment with which it begins: comments may have comments in them.
local function after_comment(text)
  local depth, at = 1, 3
  while depth > 0 do
    local from = text:find("[/*][/*]", at)
    local two = from and text:sub(from, from + 1)
    if not from then return "" end
    if two == "/*" then depth = depth + 1 elseif two == "*/" then depth = depth - 1 end
    at = from + ((two == "/*" or two == "*/") and 2 or 1)
  end
  return text:sub(at)
end

-- Why a statement is refused, nil if it is not; and its first word.
local function refusal(sql, in_transaction)
  local rest, before = sql
  repeat
    before = #rest
    rest = rest:gsub("^[%s;(]+", ""):gsub("^%-%-[^\n\r]*", "")
    if rest:find "^/%*" then rest = after_comment(rest) end
  until #rest == before
  local word, second = rest:match "^(%a+)%s*(%a*)"
  word, second = (word or ""):upper(), (second or ""):upper()
  if in_transaction and word == "SET" and (second == "LOCAL" or second == "CONSTRAINTS") then return nil, word end
  if in_transaction and word == "ROLLBACK" and second == "TO" then return nil, word end
  return refused[word], word
end

-- The query as C takes it.
local function query_of(level, what, sql, params, in_transaction)
  if type(sql) ~= "string" then problem.raise(level, what .. " needs SQL, got a " .. type(sql), 'as in db:query("… where id = $1", { id })') end
  if sql:find("\0", 1, true) then problem.raise(level, what .. ": SQL must not contain NUL bytes") end
  if #sql > MAX_SQL_BYTES then problem.raise(level, what .. ": SQL must be at most 1 MiB") end
  local hint, word = refusal(sql, in_transaction)
  if hint then problem.raise(level, ("%s: %s is refused"):format(what, word), hint) end
  local query = { sql = sql, n = 0, leaves = leaves_something(word, sql) or nil }
  if params == nil then return query end
  if type(params) ~= "table" then problem.raise(level, what .. ": parameters must be a list", 'as in db:query("… where id = $1", { id })') end
  params = copied(params)
  for i in next, params do
    if math.type(i) ~= "integer" or i < 1 then
      problem.raise(level, ("%s: parameters are a list: '%s' is no place in it"):format(what, tostring(i)), "$1 is the first")
    end
    if i > query.n then query.n = i end
  end
  if query.n > 1000 then problem.raise(level, what .. ": there are more than 1000 parameters") end
  for i = 1, query.n do
    local function wrong(text, why) problem.raise(level + 2, ("%s: parameter %d %s"):format(what, i, text), why) end
    if params[i] == nil then wrong("is nil", "json.null is NULL") end
    query[i] = values.parameter(params[i], wrong)
  end
  return query
end

local function run_now(state, lease, queries, keeps, fetch)
  local measured <close> = timed.start(state, "sqlite", "postgresql", state.shown)
  local done, found, more, code
  if postgres.stand_in then
    done, found, more, code = postgres.stand_in(queries)
  else
    done, found, more, code = host.postgres.run(lease, queries, state.timeout + GRACE_S, keeps, fetch)
  end
  measured.outcome = done and "ok" or more
  return done, found, more, code
end

-- Runs queries: { rows, count, … } and whether there are more rows; or nil and the failure.
local function run(state, lease, queries, keeps, fetch)
  local watch = outside_hooks.postgres
  local done, found, more, code
  if watch then
    done, found, more, code = watch(state.shown, queries, function() return run_now(state, lease, queries, keeps, fetch) end)
  else
    done, found, more, code = run_now(state, lease, queries, keeps, fetch)
  end
  if done then return found, more end
  return nil, failed(found, more, code)
end

local function state_of(self, what, kind)
  local state = states[self]
  if not state and leases[self] then problem.raise(3, "this transaction has ended") end
  if not state then problem.raise(3, what .. " is a method of a " .. kind, "as in " .. (kind == "database" and "db:" or "tx:") .. what .. "(…)") end
  return state
end

local shapes <const> = {
  query = function(found) return found[1] end,
  row = function(found) return found[1][1] end,
  exec = function(found) return math.max(found[2], 0) end,
}

for name, shape in pairs(shapes) do
  methods[name] = function(self, sql, params)
    local state = state_of(self, name, "database")
    local query = query_of(3, name, sql, params)
    local found, why = run(state, host.postgres.lease(state.pool), { query })
    if not found then return nil, why end
    return shape(found)
  end
  inside[name] = function(self, sql, params)
    local state = state_of(self, name, "transaction")
    local query = query_of(3, name, sql, params, true)
    local place = leases[self]
    local found, why = run(state, place.lease, { query }, true)
    if not found then
      place.last.state = why.state
      return nil, why
    end
    return shape(found)
  end
end

-- -- transactions -----------------------------------------------------------------------------------------------------

-- Ends an attempt: a script that has kept its `tx` cannot use it any more.
local attempt_mt = {
  __close = function(self)
    states[self.tx] = nil
    host.postgres.release(self.lease)
  end,
}

-- Runs f(tx) in a transaction once. Puts into `last` the SQLSTATE of the failure that ended it.
local function attempt(state, f, begin, last)
  local tx = setmetatable({}, transaction_mt)
  local place <close> = setmetatable({ lease = host.postgres.lease(state.pool), tx = tx, last = last }, attempt_mt)
  local function finish(sql)
    local done, why = run(state, place.lease, { { sql = sql, n = 0 } }, true)
    if not done then last.state = why.state end
    return done, why
  end
  last.state = nil
  local begun, unavailable = finish(begin)
  if not begun then return nil, unavailable end
  states[tx], leases[tx] = state, place
  local value, reason = f(tx)
  states[tx] = nil
  if value == nil and reason ~= nil then return nil, reason end
  local done, refusal_of_it = finish "COMMIT"
  if not done then return nil, refusal_of_it end
  if done[2] == -1 then return nil, failed("the transaction was rolled back: a statement of it had failed", "error", last.state) end
  return value == nil or value, reason
end

--- transaction(f [, { isolation =, retry = }]): runs f(tx), commits and returns the result of f. Rolls back if f fails, is
--- cancelled, or returns nil, why. `retry`: how often f runs again if the server asks for it.
function methods:transaction(f, given)
  local state = state_of(self, "transaction", "database")
  if type(f) ~= "function" then problem.raise(2, "transaction needs a function, got a " .. type(f), "as in db:transaction(function(tx) … end)") end
  if given ~= nil and type(given) ~= "table" then problem.raise(2, "transaction: options must be a table", 'as in { isolation = "serializable" }') end
  given = copied(given or {})
  local wrong, hint = suggest.stranger(given, { "isolation", "retry" })
  if wrong then problem.raise(2, "transaction has no option '" .. wrong .. "'", hint) end
  local isolation, retry = given.isolation, given.retry or 0
  if isolation ~= nil and not isolations[isolation] then
    problem.raise(2, "transaction: 'isolation' must be \"read committed\", \"repeatable read\" or \"serializable\"")
  end
  if math.type(retry) ~= "integer" or retry < 0 or retry > MAX_RETRIES then problem.raise(2, "transaction: 'retry' must be an integer from 0 to 10") end
  local begin, last = isolation and "BEGIN ISOLATION LEVEL " .. isolation:upper() or "BEGIN", {}
  for _ = 1, retry do
    local ok, value, why = pcall(attempt, state, f, begin, last)
    if not repeatable[last.state] or ok and value ~= nil then
      if not ok then error(value, 0) end
      return value, why
    end
  end
  return attempt(state, f, begin, last)
end

-- -- pipelines --------------------------------------------------------------------------------------------------------

for name, shape in pairs(shapes) do
  piped[name] = function(self, sql, params)
    local list = states[self]
    if not list then problem.raise(2, name .. " is a method of a pipeline that has not been sent", "as in db:pipeline(function(p) p:" .. name .. "(…) end)") end
    list[#list + 1] = query_of(3, name, sql, params)
    list.shapes[#list] = shape
  end
end

--- pipeline(function(p) p:exec(…) p:query(…) end): sends the statements together, as one transaction: the list of their
--- results; or nil, why.
function methods:pipeline(f)
  local state = state_of(self, "pipeline", "database")
  if type(f) ~= "function" then problem.raise(2, "pipeline needs a function, got a " .. type(f), "as in db:pipeline(function(p) p:exec(…) p:exec(…) end)") end
  local list, p = { shapes = {} }, setmetatable({}, pipeline_mt)
  states[p] = list
  f(p)
  states[p] = nil
  local results = json.array {}
  if #list == 0 then return results end
  local found, why = run(state, host.postgres.lease(state.pool), list)
  if not found then return nil, why end
  for i, shape in ipairs(list.shapes) do
    local result = shape { found[2 * i - 1], found[2 * i] }
    results[i] = result == nil and json.null or result
  end
  return results
end

-- -- rows one after another -------------------------------------------------------------------------------------------

-- Iterates over the rows of a query that runs on `lease`. `tx`: the transaction that it is part of, which goes on when the
-- loop ends; nil: the end of the loop gives the lease back.
local function rows_of(state, lease, query, fetch, tx)
  local page, at, more = nil, 0, true
  local function next_page()
    if not page then return run(state, lease, { query }, tx ~= nil, fetch) end
    if tx and not states[tx] then problem.raise(3, "this transaction has ended") end
    local done, found, is_more, code = host.postgres.more(lease, nil, state.timeout + GRACE_S)
    if done then return found, is_more end
    return nil, failed(found, is_more, code)
  end
  local function next_row()
    while not page or at == #page do
      if not more then return nil end
      local found, is_more = next_page()
      more = found and is_more
      if not found then
        if tx then leases[tx].last.state = is_more.state end
        failure.fail(is_more)
      end
      page, at = found[1] or {}, 0
    end
    at = at + 1
    return page[at]
  end
  -- Reads the rows that the script does not want: to cancel the statement would undo the transaction.
  local function drop_rest()
    while page and more and states[tx] do
      local found, is_more = next_page()
      more = found and is_more
    end
  end
  return next_row, nil, nil, setmetatable({}, { __close = tx and drop_rest or function() host.postgres.release(lease) end })
end

-- The query and the number of rows that are taken at once.
local function each_options(sql, params, given, in_transaction)
  given = given == nil and {} or type(given) == "table" and copied(given) or problem.raise(3, "each: options must be a table", "as in { fetch = 500 }")
  local wrong, hint = suggest.stranger(given, { "fetch" })
  if wrong then problem.raise(3, "each has no option '" .. wrong .. "'", hint) end
  local fetch = given.fetch or FETCH
  if math.type(fetch) ~= "integer" or fetch < 1 or fetch > MAX_FETCH then problem.raise(3, "each: 'fetch' must be an integer from 1 to 10000") end
  return query_of(4, "each", sql, params, in_transaction), fetch
end

--- each(sql [, params [, { fetch = 500 }]]): iterates over the rows, of which it takes some at a time. Raises a failure.
function methods:each(sql, params, given)
  local state = state_of(self, "each", "database")
  local query, fetch = each_options(sql, params, given)
  return rows_of(state, host.postgres.lease(state.pool), query, fetch)
end

function inside:each(sql, params, given)
  local state = state_of(self, "each", "transaction")
  local query, fetch = each_options(sql, params, given, true)
  return rows_of(state, leases[self].lease, query, fetch, self)
end

-- What a listening job takes its messages from: what is notified on a channel.
function database_mt.__listen(database, channel, given)
  local state = states[database]
  if given.pattern then return nil, "a channel of PostgreSQL is no pattern", 'as in listen { db, "orders", function(payload) … end }' end
  if #channel > 63 or channel:find("\0", 1, true) then return nil, "the name of a channel of PostgreSQL has at most 63 bytes" end
  return host.postgres.channel(state.pool, channel), channel .. " at " .. state.shown
end

-- -- opening ----------------------------------------------------------------------------------------------------------

local example <const> = 'as in postgres.open { "postgres://app@db.internal:5432/shop" }'

local function unescaped(text) return (text:gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end)) end

-- The parts of a URL: { user, host, port, database }; nil, why, hint.
local function parse(text)
  if type(text) ~= "string" then return nil, "postgres.open needs a URL", example end
  local scheme, rest = text:match "^(%a+)://(.*)$"
  if scheme ~= "postgres" and scheme ~= "postgresql" then return nil, "postgres.open: the URL must begin with postgres://", example end
  local place, path = rest:match "^([^/?#]*)(.*)$"
  local user, at = place:match "^([^@]*)@(.*)$"
  if user then place = at end
  if user and user:find(":", 1, true) then
    return nil, "postgres.open: the URL must not have a password", 'it is an option: password = secret "PGPASSWORD"'
  end
  if path:find "[?#]" then return nil, "postgres.open: the URL has no parameters", "they are options: " .. table.concat(open_options, ", ") end
  local database = unescaped(path:sub(2))
  if (user and unescaped(user) or ""):find("\0", 1, true) or database:find("\0", 1, true) then
    return nil, "postgres.open: the URL must not have a zero byte", example
  end
  if database == "" then return nil, "postgres.open: the URL has no database", example end
  local server = { user = user and unescaped(user) or "", database = database, port = DEFAULT_PORT }
  if place == "" then return server end
  local found, wrong = server_url.place("postgres.open", place, DEFAULT_PORT)
  if not found then return nil, wrong or "postgres.open: the URL's host is none", not wrong and example or nil end
  server.host, server.port, server.place = found.host, found.port, found.place
  return server
end

local function text_option(given, name)
  local text = server_url.text("postgres.open", given, name, "PGPASSWORD")
  if text:find("\0", 1, true) then problem.raise(3, ("postgres.open: '%s' must not have a zero byte"):format(name)) end
  return text
end

local function is_loopback(name) return name == "localhost" or name:sub(-10) == ".localhost" or name:find "^127%." or name == "::1" end

-- Sets what the options say of the server.
local function read_options(server, given)
  local user = text_option(given, "user")
  if user ~= "" then server.user = user end
  if server.user == "" then problem.raise(2, "postgres.open needs a user", example) end
  server.password = text_option(given, "password")
  server.size = server_url.number("postgres.open", given, "pool", POOL, 1, MAX_POOL) // 1 | 0
  server.timeout = server_url.number("postgres.open", given, "timeout", TIMEOUT_S, 0.001, MAX_TIMEOUT_S)
  server.prepare = given.prepare
  if server.prepare == nil then server.prepare = true end
  if type(server.prepare) ~= "boolean" then problem.raise(2, "postgres.open: 'prepare' must be true or false") end
  if given.tls ~= nil and given.tls ~= "on" and given.tls ~= "off" then problem.raise(2, "postgres.open: 'tls' must be \"on\" or \"off\"") end
  if not server.host then
    if type(given.socket) ~= "string" then
      problem.raise(2, "postgres.open: the URL has no host", 'name one, or a Unix socket: socket = "/run/postgresql/.s.PGSQL.5432"')
    end
    local path = paths.absolute(given.socket)
    local folder, port = path:match "^([^,]*)/%.s%.PGSQL%.(%d+)$" -- a comma would begin another server
    port = math.tointeger(tonumber(port))
    if not port or port < 1 or port > 65535 then
      problem.raise(2, "postgres.open: 'socket' must be the path of a server's socket", 'as in "/run/postgresql/.s.PGSQL.5432"')
    end
    server.host, server.port, server.socket, server.place = folder, port, path, paths.shown(path)
  elseif given.socket ~= nil then
    problem.raise(2, "postgres.open: a 'socket' is instead of the URL's host", 'as in postgres.open { "postgres://app@/shop", socket = … }')
  end
  server.tls = not server.socket and (given.tls == "on" or given.tls == nil and not is_loopback(server.host))
end

local function check_options(given)
  if type(given) == "string" then given = { given } end
  if type(given) ~= "table" then problem.raise(2, "postgres.open needs a table", example) end
  given = copied(given)
  for name in next, given do
    if name ~= 1 and not known[name] then
      problem.raise(2, "postgres.open has no option '" .. tostring(name) .. "'", suggest.hint(tostring(name), open_options)
        or "its options are the URL, " .. table.concat(open_options, ", "))
    end
  end
  return given
end

-- The connections for these options, which all scripts of the VM with the same ones share.
local function share(server, file)
  local key = table.concat({ server.place, tostring(server.tls), tostring(server.prepare), server.reach, server.root or "", server.size, server.timeout,
    #server.database, server.database, #server.user, server.user, server.password }, "\0")
  local state = by_server[key]
  if not state then
    server.script, server.lists = file, debug.getmetatable(json.array {})
    server.place = server.place .. "/" .. server.database
    state = { shown = server.place, timeout = server.timeout, pool = host.postgres.pool(server) }
    by_server[key] = state
  end
  return state
end

--- The library of one script file. `granted` is what grants.of(path) gives.
function postgres.library(granted, file)
  local library, allowed, write = { bytes = values.bytes, array = values.array }, {}, paths.roots(granted.write)
  for _, text in ipairs(granted.net) do allowed[#allowed + 1] = reach.parse(text) end

  --- open { url, user =, password =, pool =, timeout =, prepare =, tls =, socket = }: a database; or nil, why. Connects
  --- with the first statement.
  function library.open(given)
    given = check_options(given)
    local server, wrong, hint = parse(given[1])
    if not server then problem.raise(1, wrong, hint) end
    read_options(server, given)
    local kind = server.socket and "write" or "net"
    if server.socket then
      server.root = paths.within(write, server.socket)
      server.reach = server.root and "public"
    else
      server.reach = reach.find(allowed, server)
    end
    if not server.reach then
      local grant = grants.yaml(kind, server.place, file)
      host.log.write("warn", "postgres refused", { file = file, host = server.place, why = "no grant", grant = grant })
      return nil, grants.refusal(kind, server.place, file)
    end
    local database = setmetatable({}, database_mt)
    states[database] = share(server, file)
    return database
  end
  return library
end

return postgres
