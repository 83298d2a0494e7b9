-- The official server-everything behind the gateway: it lists 17 tools to clients that it can ask and 13 to others, and
-- asks for a form and for the model.
-- It also asks for the roots 350 ms after its start, beside whatever call runs then: like any client that has roots,
-- this one answers.
local cjson = require "cjson"
local real = require "spec.helpers.real"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local EVERYTHING <const> = { elicitation = { form = {}, url = {} }, sampling = {}, roots = {} }

-- The text of a call's result. Meanwhile the client answers questions for its roots.
local function text_of(c, stream)
  local answered = {}
  return upstream.text(wait.for_fact("the result", 20, function()
    for _, one in ipairs(stream:messages()) do
      if one.id == stream.id then return one end
      if one.method == "roots/list" and not answered[one.id] then
        answered[one.id] = true
        c:post { jsonrpc = "2.0", id = one.id, result = { roots = cjson.empty_array } }
      end
    end
  end))
end

for _, row in ipairs(real.servers) do
  if row.name:find "^everything 2026" then
    describe(row.name, function()
      it("lists more to a client that it can ask, and asks it", function()
        local u <close> = real.start(row.name)
        local g <close> = upstream.gateway({ one = u }, { entries = { one = { list_wait = "20s", prefix = "" } } })
        local plain <close> = g:client("2025-11-25", { capabilities = {} })
        local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
        assert.equal(13, #plain:result("tools/list").tools)
        assert.equal(17, #c:result("tools/list").tools)

        local stream = c:open("tools/call", { name = "trigger-elicitation-request", arguments = {} })
        local form = stream:wait_event("elicitation/create").json
        assert.is_table(form.params.requestedSchema.properties)
        c:post { jsonrpc = "2.0", id = form.id, result = { action = "decline" } }
        assert.truthy(text_of(c, stream):find("declined", 1, true))

        stream = c:open("tools/call", { name = "trigger-sampling-request", arguments = { prompt = "hi", maxTokens = 5 } })
        local sampling = stream:wait_event("sampling/createMessage").json
        local result = { role = "assistant", model = "m", content = { type = "text", text = "hey there" } }
        c:post { jsonrpc = "2.0", id = sampling.id, result = result }
        assert.truthy(text_of(c, stream):find("hey there", 1, true))
      end)
    end)
  end
end
