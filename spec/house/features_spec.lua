-- docs/reference/features.md equals what is proven now, and misses nothing that the revisions define.
local features = require "spec.helpers.features"
local surface = require "spec.helpers.surface"
local official = require "spec.helpers.official"()

describe("the page about what is proven", function()
  local text, problems = features.build()

  it("is as ./dev features writes it", function()
    local file <close> = assert(io.open(features.path, "rb"))
    assert.equal(text, file:read "a")
  end)

  it("has a proof, or a reason, for every request, notification and capability", function()
    assert.equal("", table.concat(problems, "\n"))
  end)
end)

-- Method -> true, for the methods that a union of a schema lists.
local function methods_of(revision, union)
  local found = {}
  for _, member in ipairs((revision.definitions[union] or {}).anyOf or {}) do
    found[revision.definitions[member["$ref"]:match "[^/]+$"].properties.method.const] = true
  end
  return found
end

describe("the list of what the revisions define", function()
  if not official then return pending "needs the official schemas" end

  local transcript = require "spec.helpers.transcript"
  local unions = {
    { "request", "client", "ClientRequest" }, { "request", "server", "ServerRequest" }, { "notification", "client", "ClientNotification" },
    { "notification", "server", "ServerNotification" },
  }

  for _, date in ipairs(transcript.revisions) do
    it("has every method of the schema of " .. date, function()
      local missing = {}
      for _, union in ipairs(unions) do
        for method in pairs(methods_of(official.revisions[date], union[3])) do
          local found = false
          for _, row in ipairs(surface) do
            found = found or row.kind == union[1] and row.who == union[2] and row.name == method and transcript.holds(row.revisions, date, "stdio")
          end
          if not found then missing[#missing + 1] = union[2] .. " " .. method end
        end
      end
      assert.same({}, missing)
    end)
  end
end)
