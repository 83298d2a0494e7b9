-- `sqlite` of scripts: databases within what is granted, each on a thread of its own. Statements of one database run one after
-- another; a transaction has it for itself until it ends.

local host = require "moonpool.host"
local grants = require "moonpool.grants"
local json = require "moonpool.json"
local paths = require "moonpool.paths"
local problem = require "moonpool.problem"
local suggest = require "moonpool.suggest"

local sqlite = {}

local opened, count = {}, 0                                -- by where they are and how: what all scripts of a VM share
local private = setmetatable({}, { __mode = "k" })         -- those in memory

-- What a script holds stands for: { handle, shown, owner, task, free }, of a transaction the same with `token`.
local states = setmetatable({}, { __mode = "k" })
local tokens = setmetatable({}, { __mode = "k" })

local methods, inside = {}, {}
local database_mt = { __index = methods, __metatable = false, __name = "sqlite.database" }
local transaction_mt = { __index = inside, __metatable = false, __name = "sqlite.transaction" }
local blob_mt = { __metatable = false, __name = "sqlite.blob" }

local undo = { __close = function(self) self.close() end }

local function check(what, sql, params)
  if type(sql) ~= "string" then problem.raise(3, what .. " needs SQL, got a " .. type(sql)) end
  if sql:find("\0", 1, true) then problem.raise(3, what .. ": SQL holds no NUL") end
  if params == nil then return end
  if type(params) ~= "table" then problem.raise(3, what .. ": parameters are a list, or a table by name", "as in db:query(\"… where id = ?\", { id })") end
  for name, value in pairs(params) do
    local kind = type(value)
    local fine = kind == "number" or kind == "string" or kind == "boolean" or value == json.null or debug.getmetatable(value) == blob_mt
    if not fine then
      problem.raise(3, what .. ": parameter " .. tostring(name) .. " is a " .. kind,
        "numbers, texts, booleans, json.null and sqlite.blob(bytes) are values of SQL")
    end
  end
end

local function words(state, ok, why, ...)
  if ok == nil then return nil, state.shown .. ": " .. why end
  return ok, why, ...
end

-- Waits until nobody has the database for itself; from here to the statement nothing waits.
local function take_turn(state)
  if state.owner and state.task == host.task() then
    problem.raise(3, "a transaction of this database is open here, and would wait for itself", "use what its function was given: tx:query, tx:exec")
  end
  while state.owner do
    state.free = state.free or host.signal()
    state.free:wait()
  end
end

local function run(state, kind, sql, params, in_transaction)
  return words(state, host.sqlite_run(state.handle, kind, sql, params, in_transaction))
end

local function rows(found, why)
  if found == nil then return nil, why end
  return json.array(found)
end

local function first(found, why)
  if found == nil then return nil, why end
  return found[1]
end

local function state_of(self, what)
  local state = states[self]
  if not state then problem.raise(3, what .. " is a method of a database", "as in db:" .. what .. "(…)") end
  local token = tokens[self]
  if token and state.owner ~= token then problem.raise(3, "this transaction is over") end
  return state, token ~= nil
end

local function define(name, kind, shape)
  inside[name] = function(self, sql, params)
    local state, in_transaction = state_of(self, name)
    check(name, sql, params)
    return shape(run(state, kind, sql, params, in_transaction))
  end
  methods[name] = function(self, sql, params)
    local state = state_of(self, name)
    check(name, sql, params)
    take_turn(state)
    return shape(run(state, kind, sql, params))
  end
end

--- query(sql [, params]): its rows, tables by column name; one(…): the first, or nil; or nil, why.
define("query", "query", rows)
define("one", "query", first)
--- exec(sql [, params]): how many rows changed, the id of the last inserted; or nil, why. Several statements, if without params.
define("exec", "exec", function(...) return ... end)

--- transaction(f): what f(tx) returns, once it is committed. Rolled back where f fails, is called off, or returns nil, why.
function methods:transaction(f)
  local state = state_of(self, "transaction")
  if type(f) ~= "function" then problem.raise(2, "transaction needs a function, got a " .. type(f), "as in db:transaction(function(tx) … end)") end
  take_turn(state)
  local token, is_open = {}, true
  state.owner, state.task = token, host.task()
  local _ <close> = setmetatable({ close = function()
    if is_open then host.sqlite_undo(state.handle) end
    local free = state.free
    state.owner, state.task, state.free = nil, nil, nil
    if free then free:set() end
  end }, undo)
  local begun, why = run(state, "begin")
  if not begun then return nil, why end
  local tx = setmetatable({}, transaction_mt)
  states[tx], tokens[tx] = state, token
  local value, reason = f(tx)
  if value == nil and reason ~= nil then return nil, reason end
  local done, refused = run(state, "commit", nil, nil, true)
  if not done then return nil, refused end
  is_open = false
  return value == nil or value, reason
end

--- close(): lets go of the file until the next statement; what is in memory is gone.
function methods:close()
  local state = state_of(self, "close")
  take_turn(state)
  run(state, "close")
end

local function hand_out(state)
  local database = setmetatable({}, database_mt)
  states[database] = state
  return database
end

local function too_many()
  host.sqlite_refused()
  return nil, "more than " .. host.sqlite_most .. " databases are open (limits.sqlite.databases)"
end

local function open_file(shown, root, rest, is_read_only, setup)
  local key = table.concat({ root, rest, tostring(is_read_only), setup or "" }, "\0")
  if not opened[key] then
    if count >= host.sqlite_most then return too_many() end
    count = count + 1
    opened[key] = { handle = host.sqlite_open(root, rest, is_read_only, setup), shown = shown }
  end
  return hand_out(opened[key])
end

local function is_full()
  local n = 0
  for _ in pairs(private) do n = n + 1 end
  return n >= host.sqlite_most
end

local function open_memory(setup)
  if is_full() then collectgarbage() end
  if is_full() then return too_many() end
  local state = { handle = host.sqlite_open(nil, nil, false, setup), shown = "sqlite" }
  private[state] = true
  return hand_out(state)
end

local function setup_of(options)
  if options == nil then return nil end
  if type(options) ~= "table" then problem.raise(3, "sqlite.open: options are a table", "as in { setup = \"create table if not exists …\" }") end
  for name in pairs(options) do
    if name ~= "setup" then
      problem.raise(3, "sqlite.open has no option '" .. tostring(name) .. "'", suggest.hint(tostring(name), { "setup" }) or "the one option is setup")
    end
  end
  if options.setup ~= nil and type(options.setup) ~= "string" then problem.raise(3, "sqlite.open: 'setup' is SQL") end
  return options.setup
end

--- The library of one script file. `granted` is what grants.of(path) gives.
function sqlite.library(granted, file)
  local read, write = paths.roots(granted.read), paths.roots(granted.write)
  local library = {}

  --- blob(bytes): a parameter that SQLite keeps as a blob.
  function library.blob(bytes)
    if type(bytes) ~= "string" then problem.raise(1, "sqlite.blob takes bytes, not a " .. type(bytes)) end
    return setmetatable({ bytes }, blob_mt)
  end

  --- open(path [, { setup = sql }]): a database, for reading alone where writing is not granted; or nil, why. ":memory:" is one of its own.
  function library.open(path, options)
    local setup = setup_of(options)
    if path == ":memory:" then return open_memory(setup) end
    local wanted, wrong = paths.absolute(path)
    if not wanted then problem.raise(1, "sqlite.open: " .. wrong, "as in sqlite.open \"data/notes.db\"") end
    local root, rest = paths.within(write, wanted)
    local is_read_only = root == nil
    if not root then root, rest = paths.within(read, wanted) end
    if not root then
      host.log("warn", "sqlite refused", { file = file, path = wanted, why = "no grant to read or write" })
      return nil, grants.refusal("write", paths.shown(wanted), file)
    end
    return open_file(paths.shown(wanted), root, rest, is_read_only, setup)
  end
  return library
end

return sqlite
