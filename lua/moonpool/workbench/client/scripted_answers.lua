-- Answers to the questions of a tool: first those of --answer, then those of the user at the terminal.

local form = require "moonpool.workbench.format.form"
local json = require "moonpool.json"
local stderr = require "moonpool.workbench.format.stderr"

local scripted_answers = {}

local hint = "as in --answer sure='{\"confirm\": true}', --answer sure=decline, or --answer '{\"confirm\": true}' for the next question"

-- Parses one --answer to { key or nil, action, content }; or nil, what, hint.
local function read_one(text)
  local key, value = text:match "^([%w_.:-]+)=(.*)$"
  value = value or text
  if value == "decline" or value == "false" then return { key = key, action = "decline" } end
  if value == "cancel" or value == "null" then return { key = key, action = "cancel" } end
  local content, why = json.decode(value)
  if content == nil then return nil, "--answer " .. (key or "") .. ": not JSON: " .. tostring(why), hint end
  return { key = key, action = "accept", content = content }
end

-- Makes the content of an answer. A value that is not an object is the value of the form's only field; true accepts a
-- web page.
local function result_of(given, params)
  if given.action ~= "accept" then return { action = given.action } end
  local content = given.content
  if params.mode == "url" then return { action = content and "accept" or "decline" } end
  if type(content) ~= "table" or content[1] ~= nil then
    local field = next((params.requestedSchema or {}).properties or {})
    content = { [field or "value"] = content }
  end
  return { action = "accept", content = json.object(content) }
end

--- on_ask(params, key) for a session: an ElicitResult. Nil without answers and without a terminal; nil, what, hint if
--- an answer is malformed. `key` is the key of the question. It is nil before 2026-07-28; then answers are used in
--- their order. Each answer is used once, so that a server which asks again ends in a cancelled question.
function scripted_answers.read(args)
  local waiting = {}
  for i, text in ipairs(args.every.answer or {}) do
    local one, what, advice = read_one(text)
    if not one then return nil, what, advice end
    waiting[i] = one
  end
  local ask = form.is_possible() and form.ask or nil
  if not waiting[1] then return ask end
  return function(params, key)
    for i, one in ipairs(waiting) do
      if key == nil or one.key == nil or one.key == key then
        table.remove(waiting, i)
        return result_of(one, params)
      end
    end
    if ask then return ask(params) end
    stderr.note("no --answer is left for the question " .. (key and "'" .. key .. "'" or "\"" .. tostring(params.message) .. "\"") .. ": it is cancelled")
    return { action = "cancel" }
  end
end

return scripted_answers