-- Values of Lua as JSON: what libraries got and gave, in the lines of a record. Bytes that are no UTF-8 become {
-- "$base64": text }, a number that JSON has no form for { "$number": text }, a handle of a stream { "$handle": n }.

local host = require "moonpool.host"
local json = require "moonpool.json"

local packed = {}

local MAX_DEPTH <const> = 64

-- A number for each handle of a stream, counted in `owner`, the record or the replay of one call.
local function handle_of(owner, value)
  owner.handles = owner.handles or {}
  if not owner.handles[value] then
    owner.handle_count = (owner.handle_count or 0) + 1
    owner.handles[value] = owner.handle_count
  end
  return owner.handles[value]
end

--- The value as JSON. A value that JSON lacks, such as a function, becomes the name of its type.
function packed.pack(owner, value, depth)
  depth = depth or 1
  local kind = type(value)
  if kind == "string" then
    return utf8.len(value) and value or { ["$base64"] = host.base64.encode(value) }
  elseif kind == "number" then
    if value ~= value or value == math.huge or value == -math.huge then return { ["$number"] = tostring(value) } end
    return value
  elseif kind == "nil" then
    return json.null
  elseif kind == "userdata" and value ~= json.null then
    local text = host.secret.reveal(value)
    if text then return packed.pack(owner, text, depth) end
    return { ["$handle"] = handle_of(owner, value) }
  elseif kind ~= "table" then
    if kind == "boolean" or value == json.null then return value end
    return kind
  end
  if depth > MAX_DEPTH then return "too deep" end
  local made = setmetatable({}, debug.getmetatable(value) == json.array_mt and json.array_mt or nil)
  local is_list = #value > 0
  for name, part in next, value do
    if not is_list or math.type(name) == "integer" then
      local key = is_list and name or packed.pack(owner, tostring(name))
      if type(key) == "string" or is_list then made[key] = packed.pack(owner, part, depth + 1) end
    end
  end
  return made
end

--- The number of the running task in `owner`: those of parallel() have numbers of their own.
function packed.task(owner)
  owner.tasks = owner.tasks or { n = 0 }
  local task = host.task.current()
  if not owner.tasks[task] then
    owner.tasks.n = owner.tasks.n + 1
    owner.tasks[task] = owner.tasks.n
  end
  return owner.tasks[task]
end

--- Results of a function, as a list.
function packed.results(owner, ...)
  local list = json.array {}
  for i = 1, select("#", ...) do list[i] = packed.pack(owner, (select(i, ...))) end
  return list
end

local function unpack_value(owner, value, depth)
  if type(value) ~= "table" or depth > MAX_DEPTH then return value end
  local bytes, number, handle = value["$base64"], value["$number"], value["$handle"]
  if type(bytes) == "string" then return host.base64.decode(bytes) or "" end
  if type(number) == "string" then return tonumber(number) or (number:find "^%-" and -math.huge or math.huge) end
  if math.type(handle) == "integer" then
    owner.streams = owner.streams or {}
    owner.streams[handle] = owner.streams[handle] or { number = handle }
    return owner.streams[handle]
  end
  local made = setmetatable({}, debug.getmetatable(value))
  for name, part in next, value do made[name] = unpack_value(owner, part, depth + 1) end
  return made
end

--- The results of a list that packed.results made.
function packed.unpack(owner, list)
  local values = {}
  for i, value in ipairs(list) do
    if value ~= json.null then values[i] = unpack_value(owner, value, 1) end
  end
  return table.unpack(values, 1, #list)
end

return packed
