-- fake.env, fake.secret, fake.exec, fake.fs, fake.redis and fake.postgres: fake variables, programs, files and databases. Scripts need the same grants as in
-- `moonpool run`.

local host = require "moonpool.host"
local json = require "moonpool.json"
local paths = require "moonpool.runtime.paths"

local machine = {}

-- -- variables ---------------------------------------------------------------------------------------------------------

--- Makes the function that replaces host.env.get for `word`, "env" or "secret". It returns a value; or nil, why, and
--- true if the variable counts as not set.
function machine.variables(word, given)
  return function(name)
    local value = given[name]
    if value == false then return nil, "the environment variable " .. name .. " is not set", true end
    if value ~= nil then return tostring(value) end
    return nil, ("fake.%s has no '%s': add %s = \"…\" to its table, or false for a variable that is not set"):format(word, name, name)
  end
end

-- -- programs ----------------------------------------------------------------------------------------------------------

-- Finds the fake answer of a command: that of the whole command line, else that of its longest beginning.
local function find(given, argv)
  for n = #argv, 1, -1 do
    local found = given[table.concat(argv, " ", 1, n)]
    if found ~= nil then return found end
  end
end

--- Makes the function that replaces host.program.run, and the list to which it appends commands.
function machine.programs(given)
  local ran = {}
  return function(argv, options)
    local command = { argv = argv, stdin = host.secret.reveal(options.stdin) or options.stdin, cwd = options.cwd, env = {} }
    for name, value in pairs(options.env or {}) do command.env[name] = host.secret.reveal(value) or value end
    ran[#ran + 1] = command
    local answer = find(given, argv)
    if answer == nil then
      return nil, ("fake.exec has no answer for '%s': add [\"%s\"] = … to its table"):format(table.concat(argv, " "), argv[1])
    end
    if type(answer) == "function" then
      local made, why = answer(command)
      if made == nil then return nil, argv[1] .. ": " .. (why or "the function in fake.exec returned nothing") end
      answer = made
    end
    if type(answer) == "string" then answer = { stdout = answer } end
    if type(answer) == "number" then answer = { status = answer } end
    return {
      status = answer.status or not answer.signal and 0 or nil, signal = answer.signal, stdout = answer.stdout or "", stderr = answer.stderr or "",
    }
  end, ran
end

-- -- files -------------------------------------------------------------------------------------------------------------

local function parents(path, visit)
  local folder = path:match "^(.*)/[^/]*$"
  while folder and folder ~= "" do
    visit(folder)
    folder = folder:match "^(.*)/[^/]*$"
  end
end

--- Makes the function that replaces host.fs.run, and its files: a table of texts by path, as scripts write paths.
function machine.files(given)
  local files, folders = {}, {}
  local function absolute(path)
    local whole, why = paths.absolute(path)
    if not whole then error("fake.fs: " .. why .. ", not '" .. tostring(path) .. "'", 4) end
    return whole
  end
  local function add_folders(path) parents(path, function(folder) folders[folder] = true end) end
  for path, text in pairs(given) do
    local whole = absolute(path)
    if path:sub(-1) == "/" then folders[whole] = true else files[paths.shown(whole)] = text end
    add_folders(whole)
  end
  local act = {}

  local function missing(path)
    return nil, "there is no such file or folder: fake.fs has none; add [\"" .. paths.shown(path) .. "\"] = \"…\" to its table", true
  end
  function act.read(path)
    if folders[path] then return nil, "this is a folder" end
    local text = files[paths.shown(path)]
    if text == nil then return missing(path) end
    return text
  end
  function act.write(path, text)
    local folder = path:match "^(.*)/[^/]*$"
    if folders[path] then return nil, "this is a folder" end
    if folder ~= "" and folder ~= host.config.folder and not folders[folder] then return missing(folder) end
    files[paths.shown(path)] = text
    return true
  end
  function act.append(path, text) return act.write(path, (files[paths.shown(path)] or "") .. text) end
  function act.mkdir(path)
    if files[paths.shown(path)] then return nil, "a file of that name is there" end
    folders[path] = true
    add_folders(path)
    return true
  end
  function act.list(path)
    local prefix, names, seen = path == "/" and path or path .. "/", {}, {}
    local function add(whole, is_folder)
      local name, more = whole:sub(#prefix + 1):match "^([^/]+)(.*)$"
      if whole:sub(1, #prefix) ~= prefix or not name then return end
      name = (is_folder or more ~= "") and name .. "/" or name
      if not seen[name] then names[#names + 1], seen[name] = name, true end
    end
    for shown in pairs(files) do add(absolute(shown), false) end
    for folder in pairs(folders) do add(folder, true) end
    if not names[1] and not folders[path] and path ~= host.config.folder then return missing(path) end
    table.sort(names)
    return names
  end
  function act.stat(path)
    local text = files[paths.shown(path)]
    if text ~= nil then return { type = "file", size = #text, modified = host.time.clock() } end
    if folders[path] or path == host.config.folder then return { type = "folder", size = 0, modified = host.time.clock() } end
    return missing(path)
  end
  function act.remove(path)
    if files[paths.shown(path)] ~= nil then
      files[paths.shown(path)] = nil
      return true
    end
    local names = folders[path] and act.list(path)
    if not names then return missing(path) end
    if names[1] then return nil, "the folder is not empty" end
    folders[path] = nil
    return true
  end

  return function(action, path, text) return act[action](path, text) end, files
end

-- -- Redis -------------------------------------------------------------------------------------------------------------

-- A faked reply as the library gets it: the value; or nil, why, reason.
local function reply_of(given, words)
  local answer = find(given, words)
  local line = table.concat(words, " ")
  if answer == nil then return nil, ("fake.redis has no answer for '%s': add [\"%s\"] = … to its table"):format(line, words[1]), "unavailable" end
  if type(answer) == "function" then
    local value, why = answer(words)
    if value == nil then return nil, why or ("the function for '%s' in fake.redis returned nothing"):format(line), "error" end
    answer = value
  end
  if answer == false then return true, nil end
  if type(answer) == "table" and answer.error then return nil, tostring(answer.error), "error" end
  return true, math.type(answer) == "float" and tostring(answer) or answer
end

-- The replies to several commands, as they are in a list.
local function replies_of(given, requests, first, last)
  local list = json.array {}
  for i = first, last do
    local done, value, reason = reply_of(given, requests[i])
    if reason == "unavailable" then return nil, value, reason end
    if done then list[#list + 1] = value == nil and json.null or value else list[#list + 1] = { error = value } end
  end
  return list
end

--- Makes the function that replaces host.redis.send, and the list to which it appends commands.
function machine.redis(given)
  local sent = {}
  return function(requests)
    for _, words in ipairs(requests) do sent[#sent + 1] = words end
    if #requests == 1 then return reply_of(given, requests[1]) end
    local is_transaction = requests[1][1] == "MULTI"
    local inside, why, reason = replies_of(given, requests, is_transaction and 2 or 1, is_transaction and #requests - 1 or #requests)
    if not inside then return nil, why, reason end
    if not is_transaction then return true, inside end
    local list = json.array { "OK" }
    for i = 2, #requests - 1 do list[i] = "QUEUED" end
    list[#requests] = inside
    return true, list
  end, sent
end

-- -- PostgreSQL --------------------------------------------------------------------------------------------------------

local ends <const> = { BEGIN = true, COMMIT = true }

-- Appends the rows and the count of a faked statement. Or nil, why, reason, SQLSTATE.
local function result_of(given, query, list)
  local params, found = { table.unpack(query, 1, query.n) }, nil
  for start in next, given do
    if query.sql:sub(1, #start) == start and (not found or #start > #found) then found = start end
  end
  local answer = found and given[found]
  if not found and ends[query.sql:match "^%u+"] then answer = 0 end
  if answer == nil then
    return nil, ("fake.postgres has no answer for '%s': add [\"%s\"] = … to its table"):format(query.sql, query.sql:match "^%s*%S*"), "unavailable"
  end
  if type(answer) == "function" then answer = answer(query.sql, params) end
  local is_list = type(answer) == "table"
  if is_list and answer.error then return nil, tostring(answer.error), "error", answer.state end
  list[#list + 1] = json.array(is_list and answer or {})
  list[#list + 1] = is_list and #answer or math.tointeger(answer) or 0
  return true
end

--- Makes the function that replaces host.postgres.run, and the list to which it appends statements.
function machine.postgres(given)
  local sent = {}
  return function(queries)
    local list = {}
    for _, query in ipairs(queries) do
      if not ends[query.sql:match "^%u+"] then sent[#sent + 1] = { sql = query.sql, table.unpack(query, 1, query.n) } end
      local done, why, reason, state = result_of(given, query, list)
      if not done then return nil, why, reason, state end
    end
    return true, list, false
  end, sent
end

return machine
