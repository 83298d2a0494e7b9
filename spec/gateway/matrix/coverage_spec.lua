-- The matrix has every method of every revision: each is used by a feature, whose check is in the file of its group.
local cjson = require "cjson.safe"
local features = require "spec.helpers.matrix.features"
local forms = require "spec.helpers.matrix.forms"
local methods = require "spec.helpers.matrix.methods"

local SCHEMAS <const> = "../shared/schema" -- where they are, if they are at hand: they are not part of the project

local UNIONS <const> = {
  client_requests = "ClientRequest", server_requests = "ServerRequest", client_notifications = "ClientNotification",
  server_notifications = "ServerNotification", input_requests = "InputRequest",
}

local function read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a"
end

-- The methods of a union of a schema, sorted.
local function union_of(schema, name)
  local all = schema["$defs"] or schema.definitions
  local union = all[name]
  if not union then return nil end
  local list, seen = {}, {}
  local function add(one)
    local method = one.properties.method.const
    if not seen[method] then list[#list + 1] = method end
    seen[method] = true
  end
  if not union.anyOf then add(union) end
  for _, one in ipairs(union.anyOf or {}) do add(all[one["$ref"]:match "[^/]+$"]) end
  table.sort(list)
  return list
end

describe("the matrix", function()
  it("has 14 forms of upstreams and 7 kinds of clients, of every revision", function()
    assert.equal(14, #forms.all)
    assert.equal(7, #forms.clients)
    for revision in pairs(methods) do
      local served, asked = 0, 0
      for _, form in ipairs(forms.all) do served = served + (form.revision == revision and 1 or 0) end
      for _, kind in ipairs(forms.clients) do asked = asked + (kind.revision == revision and 1 or 0) end
      assert.is_true(served >= 2 and asked >= 1, revision)
    end
  end)

  it("uses every method of every revision in a feature that the revision has", function()
    for revision, unions in pairs(methods) do
      for union, list in pairs(unions) do
        for _, method in ipairs(list) do
          local is_used = false
          for _, feature in ipairs(features.all) do
            for _, one in ipairs(feature.methods) do
              is_used = is_used or one == method and (feature.never or features.has(feature, revision))
            end
          end
          assert.is_true(is_used, ("%s of %s (%s) is used by no feature"):format(method, revision, union))
        end
      end
    end
  end)

  it("knows no method that no revision has", function()
    local known = {}
    for _, unions in pairs(methods) do
      for _, list in pairs(unions) do
        for _, method in ipairs(list) do known[method] = true end
      end
    end
    for _, feature in ipairs(features.all) do
      for _, method in ipairs(feature.methods) do assert.is_true(known[method] == true, feature[1] .. ": " .. method) end
    end
  end)

  it("checks each feature once, in the file of its group", function()
    local texts = {}
    for _, feature in ipairs(features.all) do
      local path = ("spec/gateway/matrix/%s_spec.lua"):format(feature.group)
      texts[path] = texts[path] or assert(read(path), path .. " is missing")
      assert.is_truthy(texts[path]:find("m:specs(it)", 1, true), path)
    end
  end)

  it("has 6,181 cells", function()
    assert.equal(6181, features.total(nil, #forms.clients, #forms.all))
  end)

  it("has the methods that the schemas have", function()
    for revision, unions in pairs(methods) do
      local text = read(("%s/%s.json"):format(SCHEMAS, revision))
      if not text then return pending("there is no schema in " .. SCHEMAS) end
      local schema = assert(cjson.decode(text))
      for union, name in pairs(UNIONS) do assert.same(union_of(schema, name), unions[union], revision .. " " .. name) end
    end
  end)
end)
