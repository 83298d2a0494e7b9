-- What can be asked of a client. A question is { needs =, method =, params =, read = function(answer) }: the capabilities it
-- takes, what is asked in the newest revision, and what an answer means.

local problem = require "moonpool.problem"
local json = require "moonpool.json"
local schema = require "moonpool.schema"
local typed = require "moonpool.typed"

local questions = {}

local question = { __name = "moonpool.question", __metatable = false }

function questions.is(value) return debug.getmetatable(value) == question end

-- What scripts call by `ask.…`.
questions.makers = {}
local make = questions.makers

-- The fields of a form: a schema of its own, or properties as `input` of a tool has them.
local function form(fields)
  local made = fields.type == "object" and fields or typed.fields(fields, true)
  local check, why = schema.compile(made)
  if not check then error("the form cannot be asked: " .. why, 4) end
  return made, check
end

local function refusal(answer) return answer.action == "decline" and "declined" or "cancelled" end

--- A form for the user.
function make.elicit(message, fields)
  local requested, check = form(fields or {})
  return setmetatable({
    needs = { "elicitation.form" }, method = "elicitation/create",
    params = { message = message, requestedSchema = requested, mode = "form" },
    read = function(answer)
      if answer.action ~= "accept" then return nil, refusal(answer) end
      local filled_in = answer.content or {}
      if type(filled_in) ~= "table" or not check(filled_in) then return nil, "invalid" end
      return filled_in
    end,
  }, question)
end

-- Where a user may be sent: somewhere on the web, and without a password in the address (EL-7).
local function check_url(url)
  local authority = type(url) == "string" and not url:find "[%s%c]" and url:match "^[hH][tT][tT][pP][sS]?://([^/?#]+)"
  if not authority then problem.raise(3, "a user is sent to an http or https address", "as in \"https://example.com/sign-in\"") end
  if authority:find("@", 1, true) then problem.raise(3, "the address has credentials in it", "the page it leads to asks for them") end
end

--- A page for the user to open. Yes means that it is opened, not what happens there (EL-4).
function make.elicit_url(message, url)
  check_url(url)
  return setmetatable({
    needs = { "elicitation.url" }, method = "elicitation/create", params = { mode = "url", message = message, url = url },
    read = function(answer)
      if answer.action == "accept" then return true end
      return nil, refusal(answer)
    end,
  }, question)
end

--- A turn of the client's model. `request` is a text, or the parameters of sampling/createMessage.
function make.sample(request)
  if type(request) == "string" then
    request = { messages = json.array { { role = "user", content = { type = "text", text = request } } } }
  end
  local params = { maxTokens = 1024 }
  for name, value in pairs(request) do params[name] = value end
  return setmetatable({
    needs = { params.tools and "sampling.tools" or "sampling" }, method = "sampling/createMessage", params = params,
    read = function(answer)
      if type(answer.content) ~= "table" then return nil, "invalid" end
      return answer
    end,
  }, question)
end

--- The client's roots.
function make.roots()
  return setmetatable({
    needs = { "roots" }, method = "roots/list", params = {},
    read = function(answer)
      if type(answer.roots) ~= "table" then return nil, "invalid" end
      return answer.roots
    end,
  }, question)
end

--- The same question without one of its params.
function questions.without(asked, name)
  local made, params = {}, {}
  for key, value in pairs(asked) do made[key] = value end
  for key, value in pairs(asked.params) do params[key] = value end
  made.params, params[name] = params, nil
  return setmetatable(made, question)
end

return questions
