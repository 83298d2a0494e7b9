-- The library `sqlite` of scripts: databases in granted paths, each with its own thread. Statements of one database run
-- one after another. A transaction has exclusive use of its database until it ends.

local host = require "moonpool.host"
local copied = require "moonpool.runtime.copied"
local grants = require "moonpool.runtime.grants"
local json = require "moonpool.json"
local members = require "moonpool.runtime.members"
local paths = require "moonpool.runtime.paths"
local problem = require "moonpool.runtime.diagnostic"
local suggest = require "moonpool.runtime.suggest"
local timed = require "moonpool.runtime.timed"
local outside_hooks = require "moonpool.runtime.outside_hooks"
local weak = require "moonpool.runtime.weak"

local sqlite = {}

local MAX_SQL_BYTES = 1 << 20          -- bytes of SQL in one text
local WAIT = 0.002                   -- seconds between two checks whether another database may be opened
local MAX_COLLECTION_S = 0.5       -- seconds to wait until the collector has freed a database in memory
local MAX_CLOSE_S = 5              -- seconds to wait until databases that are being closed are on disk

-- The states of database files, by path, mode and setup. All scripts of a VM share them. The garbage collector removes
-- a state that no script holds and whose file is closed.
local by_place = setmetatable({}, weak.values)
local open_files = {}     -- the states of database files that have a handle, as keys
local uses = 0            -- counts statements, to find the least recently used database

-- The state of each database that a script holds: { handle, shown, open, owner, waiters, running, used, is_file }.
-- `handle` is nil while the database is closed; `open` makes a new one, for `script`. `owner` is the token of the open transaction, a
-- table { task }, or nil. `waiters` are the signals of tasks that wait for the end of the transaction. The keys of
-- `running` are the uses of the handle by statements. A task can be preempted between any two instructions, so each of
-- two steps is one call of C: host.sqlite.open opens the database and sets `handle`; host.sqlite.run compares `owner`,
-- sets it and queues the statement.
local states = setmetatable({}, weak.keys)
local tokens = setmetatable({}, weak.keys)
local scripts = setmetatable({}, weak.keys) -- of each database: the number of the script that has asked for it

local methods, inside = members.of_object {}, members.of_object {}
local database_mt = { __index = methods, __metatable = false, __name = "sqlite.database" }
local transaction_mt = { __index = inside, __metatable = false, __name = "sqlite.transaction" }
local blob_mt = { __metatable = false, __name = "sqlite.blob" }

local insert, remove = table.insert, table.remove -- each is one step, in which the task is not preempted
local RECHECK <const> = 1            -- seconds after which who waits for a transaction looks again: one that was cancelled may have woken nobody

local undo = { __close = function(self) self.close() end }

-- Copies the parameters without metamethods; nil if there are none.
local function check(what, sql, params)
  if type(sql) ~= "string" then problem.raise(3, what .. " needs SQL, got a " .. type(sql)) end
  if sql:find("\0", 1, true) then problem.raise(3, what .. ": SQL must not contain NUL bytes") end
  if params == nil then return end
  if type(params) ~= "table" then problem.raise(3, what .. ": parameters must be a list, or a table by name", "as in db:query(\"… where id = ?\", { id })") end
  params = copied(params)
  for name, value in next, params do
    local kind = type(value)
    local fine = kind == "number" or kind == "string" or kind == "boolean" or value == json.null or debug.getmetatable(value) == blob_mt
    if not fine then
      problem.raise(3, what .. ": parameter " .. tostring(name) .. " is a " .. kind,
        "numbers, texts, booleans, json.null and sqlite.blob(bytes) are values of SQL")
    end
  end
  return params
end

local function words(state, ok, why, ...)
  if ok == nil then return nil, state.shown .. ": " .. why end
  return ok, why, ...
end

-- Waits until no transaction has exclusive use of the database. Another one may have begun by the time that the caller
-- continues.
local function take_turn(state)
  local owner = state.owner
  if owner and owner.task == host.task.current() then
    problem.raise(3, "the call has an open transaction of this database, so this statement would wait for itself",
      "use the transaction's own functions: tx:query, tx:exec")
  end
  while state.owner do
    local free = host.task.event()
    insert(state.waiters, free)
    if state.owner then free:wait(RECHECK) end
  end
end

local function give_turn(state)
  state.owner = nil
  repeat
    local free = remove(state.waiters, 1)
    if free then free:set() end
  until not free
end

local function close(state)
  local handle = state.handle
  state.handle, open_files[state] = nil, nil
  if handle then host.sqlite.leave(handle) end
end

-- Closes the least recently used file that no call uses now; with `script`, of those that this script has opened. False
-- if there is none.
local function close_idle(script)
  local oldest
  for state in next, open_files do
    local is_idle = not state.owner and next(state.running) == nil and (not script or state.script == script)
    if is_idle and (not oldest or state.used < oldest.used) then oldest = state end
  end
  if oldest then close(oldest) end
  return oldest ~= nil
end

-- True if host.limits.sqlite_databases is reached, by open databases or by databases whose threads are still closing, or
-- if the script leaves too few of them to others. The second value is true if open databases alone are too many, the
-- third if the garbage collector has work left, the fourth how many the script has if only these are too many.
local function is_full(script)
  local most <const> = host.limits.sqlite_databases
  local open, closing, is_collecting, is_over_share, own = host.sqlite.count(script)
  local places_are_taken = open >= most or is_over_share
  return places_are_taken or closing >= most, places_are_taken, is_collecting, open < most and is_over_share and own or nil
end

-- Waits until the garbage collector has closed databases in memory that no script holds. Other calls run meanwhile.
local function wait_for_place(script)
  if not host.sqlite.tidy() then return collectgarbage() end -- scripts are still loading: no task may wait
  local began = host.time.now()
  repeat
    host.time.sleep(WAIT)
    local full, places_are_taken, is_collecting = is_full(script)
    if not full or places_are_taken and not is_collecting then return end
  until host.time.now() - began > (places_are_taken and MAX_COLLECTION_S or MAX_CLOSE_S)
end

-- Makes room for one more database of the script within host.limits.sqlite_databases. True; or nil, why.
local function make_room(script)
  local full, places_are_taken, _, own
  repeat
    full, places_are_taken, _, own = is_full(script)
  until not places_are_taken or not close_idle(own and script)
  if full then
    wait_for_place(script)
    full, _, _, own = is_full(script)
  end
  if not full then return true end
  host.sqlite.count_refused()
  if not own then return nil, "more than " .. host.limits.sqlite_databases .. " databases are open" end
  return nil, ("this script has %d databases open, and the others of %d are for other scripts: close some"):format(own, host.limits.sqlite_databases)
end

-- Opens the database of the state for the script if it is closed. True; or nil, why.
local function ensure_open(state, script)
  if state.handle then return true end
  local fine, why = make_room(script)
  if not fine then return nil, why end
  state.open(script)
  if state.is_file then open_files[state] = true end
  return true
end

local release = { __close = function(self) self.running[self] = nil end }

local function ended(measured, found, ...)
  measured.outcome = found == nil and "error" or "ok"
  return found, ...
end

-- `token`: of the transaction that the statement belongs to.
local function run_now(state, kind, sql, params, token, script)
  local use <close> = setmetatable({ running = state.running }, release)
  state.running[use] = true
  while true do
    local fine, why = ensure_open(state, script)
    if not fine then return words(state, nil, why) end
    uses = uses + 1
    state.used = uses
    local measured <close> = timed.start(state, "sqlite", "sqlite", state.label)
    local found, more, last = words(state, ended(measured, host.sqlite.run(state, kind, sql, params, token, script)))
    if found ~= false then return found, more, last end
    if not token or kind == "begin" then take_turn(state) elseif state.owner ~= token then return nil, "this transaction has ended" end
  end
end

local function run(state, kind, sql, params, token, script)
  local watch = outside_hooks.sqlite
  if not watch then return run_now(state, kind, sql, params, token, script) end
  return watch(state.place, kind, sql, params, function() return run_now(state, kind, sql, params, token, script) end)
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
  if token and state.owner ~= token then problem.raise(3, "this transaction has ended") end
  return state, token
end

local function define(name, kind, shape)
  inside[name] = function(self, sql, params)
    local state, token = state_of(self, name)
    params = check(name, sql, params)
    return shape(run(state, kind, sql, params, token, scripts[self]))
  end
  methods[name] = function(self, sql, params)
    local state = state_of(self, name)
    params = check(name, sql, params)
    take_turn(state)
    return shape(run(state, kind, sql, params, nil, scripts[self]))
  end
end

--- query(sql [, params]): returns all rows, as tables by column name. one(…): returns the first row or nil. Both: nil,
--- why on failure.
define("query", "query", rows)
define("one", "query", first)
--- exec(sql [, params]): returns the number of changed rows and the id of the last inserted row; or nil, why. Without
--- params, `sql` may have several statements.
define("exec", "exec", function(...) return ... end)

--- transaction(f): runs f(tx), commits and returns the result of f. Rolls back if f fails, is cancelled, or returns
--- nil, why.
function methods:transaction(f)
  local state = state_of(self, "transaction")
  if type(f) ~= "function" then problem.raise(2, "transaction needs a function, got a " .. type(f), "as in db:transaction(function(tx) … end)") end
  take_turn(state)
  local token, is_open = { task = host.task.current() }, true
  local _ <close> = setmetatable({ close = function()
    if state.owner ~= token then return end
    if is_open and state.handle then host.sqlite.undo(state.handle) end
    give_turn(state)
  end }, undo)
  local script = scripts[self]
  local begun, why = run(state, "begin", nil, nil, token, script)
  if not begun then return nil, why end
  state.owner = token -- run() has set it already, except in a replay, where no statement runs
  local tx = setmetatable({}, transaction_mt)
  states[tx], tokens[tx], scripts[tx] = state, token, script
  local value, reason = f(tx)
  if value == nil and reason ~= nil then return nil, reason end
  local done, refused = run(state, "commit", nil, nil, token, script)
  if not done then return nil, refused end
  is_open = false
  return value == nil or value, reason
end

--- close(): closes the file until the next statement; the data of a database in memory is lost. The database no longer
--- counts for host.limits.sqlite_databases.
function methods:close()
  local state = state_of(self, "close")
  take_turn(state)
  if not state.handle then return end
  run(state, "close", nil, nil, nil, scripts[self])
  if next(state.running) == nil then close(state) end
end

local function hand_out(state, script)
  local database = setmetatable({}, database_mt)
  states[database], scripts[database] = state, script
  return database
end

local function open_file(shown, root, rest, is_read_only, setup, script)
  local key = table.concat({ root, rest, tostring(is_read_only), setup or "" }, "\0")
  local state = by_place[key]
  if not state then
    state = { shown = shown, label = paths.shown(root), place = paths.shown(rest == "" and root or root .. "/" .. rest), running = {},
      waiters = {}, used = 0, is_file = true }
    function state.open(by)
      state.script = by
      host.sqlite.open(root, rest, is_read_only, setup, state, by)
    end
    by_place[key] = state
  end
  return hand_out(state, script)
end

local function open_memory(setup, script)
  local state = { shown = "sqlite", label = ":memory:", place = ":memory:", running = {}, waiters = {}, used = 0 }
  function state.open(by) host.sqlite.open(nil, nil, false, setup, state, by) end
  if not host.script.is_replay then
    local fine, why = ensure_open(state, script)
    if not fine then return nil, why end
  end
  return hand_out(state, script)
end

local function setup_of(options)
  if options == nil then return nil end
  if type(options) ~= "table" then problem.raise(3, "sqlite.open: options must be a table", "as in { setup = \"create table if not exists …\" }") end
  options = copied(options)
  for name in next, options do
    if name ~= "setup" then
      problem.raise(3, "sqlite.open has no option '" .. tostring(name) .. "'", suggest.hint(tostring(name), { "setup" })
        or "the only option is 'setup'; a grant to read, and none to write, opens the file for reading only")
    end
  end
  if options.setup ~= nil and type(options.setup) ~= "string" then problem.raise(3, "sqlite.open: 'setup' must be a string of SQL") end
  if options.setup and #options.setup > MAX_SQL_BYTES then problem.raise(3, "sqlite.open: 'setup' must be at most 1 MiB of SQL") end
  return options.setup
end

--- The library of one script file. `granted` is what grants.of(path) gives.
function sqlite.library(granted, file)
  local read, write = paths.roots(granted.read), paths.roots(granted.write)
  local library, script = {}, host.sqlite.script(file)

  --- blob(bytes): marks a parameter that SQLite stores as a blob.
  function library.blob(bytes)
    if type(bytes) ~= "string" then problem.raise(1, "sqlite.blob takes bytes, not a " .. type(bytes)) end
    return setmetatable({ bytes }, blob_mt)
  end

  --- open(path [, { setup = sql }]): a database, read-only without a `write` grant; or nil, why. Each ":memory:" is a
  --- new database.
  function library.open(path, options)
    local setup = setup_of(options)
    if path == ":memory:" then return open_memory(setup, script) end
    local wanted, wrong = paths.absolute(path)
    if not wanted then problem.raise(1, "sqlite.open: " .. wrong, "as in sqlite.open \"data/notes.db\"") end
    local root, rest = paths.within(write, wanted)
    local is_read_only = root == nil
    if not root then root, rest = paths.within(read, wanted) end
    if not root then
      host.log.write("warn", "sqlite refused", {
        file = file, path = wanted, why = "no grant to read or write", grant = grants.yaml("write", paths.shown(wanted), file),
      })
      return nil, grants.refusal("write", paths.shown(wanted), file)
    end
    return open_file(paths.shown(wanted), root, rest, is_read_only, setup, script)
  end
  return library
end

return sqlite
