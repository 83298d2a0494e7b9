-- The short form of a tool: a plain function. The comment above it is the description, its annotations are the schema.
--   --- Add two numbers.
--   ---@param a number  The first
--   ---@param b? number
--   return function(a, b, call) … end

local json = require "moonpool.json"
local notation = require "moonpool.things.type_notation"
local suggest = require "moonpool.runtime.suggest"

local annotated = {}

-- The comment lines directly above line `first`, oldest first: { n =, text = }.
local function comment_above(lines, first)
  local block = {}
  for n = first - 1, 1, -1 do
    local text = lines[n]:match "^%s*(%-%-.*)$"
    if not text or text:find "^%-%-%[%[" then break end
    table.insert(block, 1, { n = n, text = text })
  end
  return block
end

-- The lines of the description (`---`, or `--` if there are none), and rows for @param and @return.
local function read(block)
  local doc, plain, params, returned = {}, {}, {}, nil
  for _, line in ipairs(block) do
    local tag, rest = line.text:match "^%-%-%-?%s*@(%a+)%s*(.*)$"
    if tag == "param" then
      params[#params + 1] = { n = line.n, rest = rest }
    elseif tag == "return" then
      returned = returned or { n = line.n, rest = rest }
    elseif not tag then
      local text = line.text:match "^%-%-%-%s?(.*)$"
      if text then
        doc[#doc + 1] = text
      else
        plain[#plain + 1] = line.text:match "^%-%-%s?(.*)$"
      end
    end
  end
  local description = table.concat(#doc > 0 and doc or plain, "\n"):gsub("^%s+", ""):gsub("%s+$", "")
  return description, params, returned
end

local function names_of(f, count)
  local names = {}
  for i = 1, count do names[i] = debug.getlocal(f, i) end
  return names
end

-- Makes function(args, call) from the script's function(a, b, call). Made once, so that a call costs one further Lua
-- call.
local function unpacker(f, names)
  local list = {}
  for i, name in ipairs(names) do list[i] = name == "call" and "call" or ("args[%q]"):format(name) end
  return load("local f = ... return function(args, call) return f(" .. table.concat(list, ", ") .. ") end", "=unpack", "t", {})(f)
end

--- Reads the short form. Returns { description, input, output, handler, positional }, where `positional` has the
--- script's own function, the names of its arguments, and the place of `call` among its parameters; calls
--- complain(line, what, hint) for each error.
function annotated.read(f, text, complain)
  local info, lines = debug.getinfo(f, "Su"), {}
  for line in (text .. "\n"):gmatch "(.-)\r?\n" do lines[#lines + 1] = line end
  local here = info.linedefined
  if info.isvararg then complain(here, "a short-form tool cannot take '...'", "name its parameters, or use tool { … }") end
  local names = names_of(f, info.nparams)
  local description, params, returned = read(comment_above(lines, here))
  if description == "" then complain(here, "the function has no description", "write '--- What it does.' above it") end

  local is_name, properties, order, required = {}, {}, {}, {}
  for _, name in ipairs(names) do is_name[name] = true end
  for _, row in ipairs(params) do
    local name, mark, rest = row.rest:match "^([%a_][%w_]*)(%??)%s*(.*)$"
    if not name then
      complain(row.n, "an annotation without a name", "as in ---@param a number")
    elseif not is_name[name] then
      complain(row.n, "the function has no parameter '" .. name .. "'", suggest.hint(name, names))
    elseif properties[name] then
      complain(row.n, "'" .. name .. "' is annotated twice")
    elseif name ~= "call" then
      local schema, after, third = notation.parse(rest)
      if not schema then
        complain(row.n, after, third)
        properties[name] = {}
      else
        local about = rest:sub(after):gsub("^%s*#?%s*", ""):gsub("%s+$", "")
        if about ~= "" then schema.description = about end
        properties[name] = setmetatable(schema, { __order = { "type", "description" } })
        if mark == "" and not third then required[name] = true end
      end
    end
  end
  local needed = {}
  for _, name in ipairs(names) do
    if name ~= "call" then
      if not properties[name] then
        complain(here, "parameter '" .. name .. "' has no annotation", "write '---@param " .. name .. " number' above the function")
      end
      order[#order + 1] = name
      if required[name] then needed[#needed + 1] = name end
    end
  end

  -- @return becomes the output schema only for a table: other values say no more than the text does.
  local output
  if returned then
    local schema, after, hint = notation.parse(returned.rest)
    if not schema then
      complain(returned.n, after, hint)
    elseif (schema.type == "object" or schema.type == "array") and (schema.properties or schema.items or schema.additionalProperties) then
      output = schema
    end
  end

  local handler, place = unpacker(f, names), nil
  for i, name in ipairs(names) do place = name == "call" and i or place end
  return {
    description = description,
    input = setmetatable({
      type = "object", properties = #order > 0 and setmetatable(properties, { __order = order }) or nil,
      required = #needed > 0 and json.array(needed) or nil, additionalProperties = false,
    }, { __order = { "type", "properties", "required" } }),
    output = output,
    handler = handler,
    positional = { f = f, names = order, call = place, handler = handler },
  }
end

return annotated
