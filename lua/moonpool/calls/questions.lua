-- The questions that a script can ask a client. A question is { needs =, method =, params =, read = function(answer) }: the capabilities
-- that the client must have, the request in the base revision, and a function that turns the client's answer into the script's value.

local frozen = require "moonpool.runtime.frozen"
local problem = require "moonpool.runtime.diagnostic"
local json = require "moonpool.json"
local schema = require "moonpool.schema"
local typed = require "moonpool.things.type_schema"

local questions = {}

local question = { name = "moonpool.question", what = "a question" }

function questions.is(value) return frozen.is(value, question) end

--- The content of a question that a script holds: { needs, method, params, read }.
function questions.content(value) return frozen.content(value) end

local function new(content) return frozen.new(question, {}, content) end

-- The functions that scripts have as `ask.…`.
questions.makers = {}
local make = questions.makers

-- The schema of a form's fields: one that the script wrote, or made of properties like those of a tool's `input`.
local function form(fields)
  local made = fields.type == "object" and fields or typed.fields(fields, true)
  local check, why = schema.compile(made)
  if not check then error("the form is not valid: " .. why, 4) end
  return made, check
end

local function refusal(answer) return answer.action == "decline" and "declined" or "cancelled" end

--- A question that shows a form to the user.
function make.elicit(message, fields)
  local requested, check = form(fields or {})
  return new {
    needs = { "elicitation.form" }, method = "elicitation/create",
    params = { message = message, requestedSchema = requested, mode = "form" },
    read = function(answer)
      if answer.action ~= "accept" then return nil, refusal(answer) end
      local filled_in = answer.content or {}
      if type(filled_in) ~= "table" or not check(filled_in) then return nil, "invalid" end
      return filled_in
    end,
  }
end

-- True if a URL may be shown to a user: https or http, and no password in it (EL-7).
local function check_url(url)
  local authority = type(url) == "string" and not url:find "[%s%c]" and url:match "^[hH][tT][tT][pP][sS]?://([^/?#]+)"
  if not authority then problem.raise(3, "URL elicitation needs an http or https URL", "as in \"https://example.com/sign-in\"") end
  if authority:find("@", 1, true) then problem.raise(3, "the URL contains credentials", "the page at the URL can ask for them") end
end

--- A question that asks the user to open a page. The answer "accept" means that the user opened it, not that anything was done there (EL-4).
function make.elicit_url(message, url)
  check_url(url)
  return new {
    needs = { "elicitation.url" }, method = "elicitation/create", params = { mode = "url", message = message, url = url },
    read = function(answer)
      if answer.action == "accept" then return true end
      return nil, refusal(answer)
    end,
  }
end

--- A question to the client's model. `request` is a text, or the parameters of sampling/createMessage.
function make.sample(request)
  if type(request) == "string" then
    request = { messages = json.array { { role = "user", content = { type = "text", text = request } } } }
  end
  local params = { maxTokens = 1024 }
  for name, value in pairs(request) do params[name] = value end
  return new {
    needs = { params.tools and "sampling.tools" or "sampling" }, method = "sampling/createMessage", params = params,
    read = function(answer)
      if type(answer.content) ~= "table" then return nil, "invalid" end
      return answer
    end,
  }
end

--- A question for the client's roots.
function make.roots()
  return new {
    needs = { "roots" }, method = "roots/list", params = {},
    read = function(answer)
      if type(answer.roots) ~= "table" then return nil, "invalid" end
      return answer.roots
    end,
  }
end

--- A copy of a question's content without one of its params.
function questions.without(asked, name)
  local made, params = {}, {}
  for key, value in pairs(asked) do made[key] = value end
  for key, value in pairs(asked.params) do params[key] = value end
  made.params, params[name] = params, nil
  return made
end

return questions
