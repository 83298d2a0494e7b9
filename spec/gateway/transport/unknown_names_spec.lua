-- A method, tool, prompt, resource or argument that does not exist is refused with the right code in every revision,
-- and never by a 5xx (B-69).
local gateway = require "spec.helpers.gateway"

local scripts = {
  ["tools/fails.lua"] = 'return tool { "Fails.", function() return nil, "not today" end }',
  ["tools/breaks.lua"] = 'return tool { "Breaks.", function() error "secret" end }',
  ["prompts/hello.lua"] = 'return prompt { "Says hello.", args = { name = t.string }, function(args) return { user("Hello " .. args.name) } end }',
  ["resources/order.lua"] = 'return resource { "An order.", uri = "orders://{id}", function(vars) if vars.id ~= "0" then return vars.id end end }',
}

local NOT_FOUND = { -32002, -32002, -32002, -32002, -32602 }

-- Each row: method, params, the error's code (a list: by revision).
local missing = {
  { "no/such", {}, -32601 }, { "tools", {}, -32601 }, { "tools/", {}, -32601 }, { "Tools/List", {}, -32601 }, { "tools/lists", {}, -32601 },
  { ("x"):rep(10000), {}, -32601 }, { "tools/delete", {}, -32601 },
  { "tools/call", { name = "nope" }, -32602 }, { "tools/call", { name = "" }, -32602 }, { "tools/call", { name = "../fails" }, -32602 },
  { "tools/call", { name = "Fails" }, -32602 }, { "tools/call", { name = ("x"):rep(10000) }, -32602 },
  { "prompts/get", { name = "nope" }, -32602 }, { "prompts/get", { name = "" }, -32602 }, { "prompts/get", { name = "hello" }, -32602 },
  { "resources/read", { uri = "orders://0" }, NOT_FOUND }, { "resources/read", { uri = "nope://1" }, NOT_FOUND },
  { "resources/read", { uri = "orders:" }, NOT_FOUND },
  { "resources/read", { uri = "file:///etc/passwd" }, NOT_FOUND }, { "resources/read", { uri = ("x"):rep(10000) }, NOT_FOUND },
  { "resources/read", { uri = "http://[" }, NOT_FOUND }, { "resources/read", { uri = "orders://%" }, NOT_FOUND },
  { "resources/read", { uri = "%00" }, NOT_FOUND },
  { "tools/list", { cursor = "nope" }, -32602 }, { "resources/list", { cursor = "" }, -32602 }, { "prompts/list", { cursor = "x" }, -32602 },
}

-- Without names there is nothing for the mirrored headers of 2026-07-28 to repeat, so that revision gives the same
-- error.
local incomplete = {
  { "tools/call", {} }, { "prompts/get", {} }, { "resources/read", {} }, { "tools/call", { name = 7 } }, { "prompts/get", { name = { "hello" } } },
  { "resources/read", { uri = 7 } },
}

local revisions = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" }

local function status_of(revision, code)
  if revision == "2024-11-05" then return 202 end
  return revision ~= "2026-07-28" and 200 or code == -32601 and 404 or 400
end

for i, revision in ipairs(revisions) do
  describe("an unknown method, tool, prompt or resource, in " .. revision .. ",", function()
    it("is an error with its own code, not an internal error", function()
      local g <close> = gateway.start { scripts = scripts }
      local me = g:client(revision)
      local function check(method, params, code)
        local answer, response = me:call(method, params)
        local name = ("%s %s"):format(method:sub(1, 40), tostring(params.name or params.uri or params.cursor):sub(1, 40))
        assert.same({ code, status_of(revision, code) }, { answer.error and answer.error.code, response.status }, name)
        assert.is_true(#answer.error.message < 1000, name)
        return answer.error
      end
      for _, row in ipairs(missing) do
        local told = check(row[1], row[2], type(row[3]) == "table" and row[3][i] or row[3])
        if row[3] == NOT_FOUND then assert.equal(row[2].uri, told.data.uri) end
      end
      for _, row in ipairs(incomplete) do
        local answer, response = me:call(row[1], row[2])
        assert.is_true(answer.error.code == -32602 or revision == "2026-07-28" and answer.error.code == -32020, row[1])
        assert.is_true(response.status < 500)
      end
      assert.equal(0, g:status().counters.tool_faults)
      for name, text in pairs { fails = "^not today$", breaks = "^internal error %x%x%x%x$" } do
        local answer, response = me:call("tools/call", { name = name })
        assert.is_true(answer.result.isError)
        assert.truthy(answer.result.content[1].text:find(text))
        assert.equal(status_of(revision, 0) == 202 and 202 or 200, response.status)
      end
      if me.delete then me:delete() end
      me:close()
      assert.has_nothing_left(g)
    end)
  end)
end
