-- Five revisions of clients before five revisions of upstreams: each client gets what a client of the older revision of
-- the two gets from a server of that revision, but for the names' prefix and the few conversions that stand below.
-- pairs: tools, prompts, resources and completion; clients 2024-11-05..; upstreams 2025-03-26.. http
-- pairs: tools, prompts, resources and completion; clients 2024-11-05..; upstreams 2024-11-05 sse
-- pairs: tools, prompts and completion; clients 2024-11-05..; upstreams 2024-11-05.. stdio
local cjson = require "cjson.safe"
local direct = require "spec.helpers.upstream.direct"
local upstream = require "spec.helpers.upstream"

local NEWEST <const> = "2026-07-28"
local META <const> = "io.modelcontextprotocol/"

local function older(a, b) return a < b and a or b end

-- The members that all results of 2026-07-28 have are removed; so is the hint about a schema's dialect, which newer
-- clients need.
local function without_hints(result)
  if type(result) ~= "table" then return result end
  result.resultType, result.ttlMs, result.cacheScope = nil, nil, nil
  if result._meta then
    result._meta[META .. "serverInfo"] = nil
    if next(result._meta) == nil then result._meta = nil end
  end
  return result
end

local LISTS <const> = {
  { "tools/list", "tools", "name" }, { "prompts/list", "prompts", "name" }, { "resources/list", "resources", "uri" },
  { "resources/templates/list", "resourceTemplates", "uriTemplate" },
}

local REQUESTS <const> = {
  { "tools/call", { name = "echo", arguments = { a = "b" } } }, { "tools/call", { name = "sum", arguments = { a = 1, b = 2.5 } } },
  { "tools/call", { name = "complain", arguments = { a = 1 } } }, { "tools/call", { name = "fail", arguments = { a = 1 } } },
  { "tools/call", { name = "nothing", arguments = { a = 1 } } },
  { "prompts/get", { name = "greet", arguments = { who = "you", style = "Hi" } } }, { "prompts/get", { name = "plain" } },
  { "prompts/get", { name = "greet" } },
  { "resources/read", { uri = "stub://text" } }, { "resources/read", { uri = "stub://bytes" } }, { "resources/read", { uri = "stub://item/7" } },
  { "completion/complete", { ref = { type = "ref/prompt", name = "greet" }, argument = { name = "who", value = "x" } } },
  { "completion/complete", { ref = { type = "ref/resource", uri = "stub://item/{id}" }, argument = { name = "id", value = "7" } } },
}

local function renamed(params, prefix)
  local copy = {}
  for name, value in pairs(params) do copy[name] = value end
  if copy.name then copy.name = prefix .. copy.name end
  if copy.ref and copy.ref.name then copy.ref = { type = copy.ref.type, name = prefix .. copy.ref.name } end
  return copy
end

-- What a client of a revision gets from a stub of that revision, without a gateway: lists by method, and answers by the
-- request's number.
local function gather(c, prefix)
  local found = { lists = {}, answers = {} }
  for _, list in ipairs(LISTS) do
    local entries = {}
    local cursor
    repeat
      local page = c:result(list[1], { cursor = cursor })
      for _, entry in ipairs(page[list[2]]) do
        local key = entry[list[3]]
        if list[3] ~= "name" or key:sub(1, #prefix) == prefix then
          if list[3] == "name" then entry.name = key:sub(#prefix + 1) end
          entries[#entries + 1] = entry
        end
      end
      cursor = page.nextCursor
    until not cursor
    table.sort(entries, function(a, b) return a[list[3]] < b[list[3]] end)
    found.lists[list[1]] = entries
  end
  for i, request in ipairs(REQUESTS) do
    local answer = c:call(request[1], renamed(request[2], prefix))
    found.answers[i] = { result = without_hints(answer.result), error = answer.error }
  end
  return found
end

-- The text of an error may name the gateway's things by their names here; its code and data are compared.
local function comparable(answer)
  if not answer.error then return answer end
  return { error = { code = answer.error.code, data = answer.error.data, message = answer.error.code == -32123 and answer.error.message or nil } }
end

describe("a client before an upstream", function()
  local stubs, expected, g = {}, {}, nil

  lazy_setup(function()
    for _, revision in ipairs(upstream.revisions) do
      local lone <close> = upstream.start { revision = revision, transport = "stdio" }
      local c <close> = direct.start(lone, revision)
      expected[revision] = gather(c, "")
    end
    for i, revision in ipairs(upstream.revisions) do
      stubs["r" .. i] = upstream.start { revision = revision, transport = revision == "2024-11-05" and upstream.has "sse" and "sse" or "http" }
      if upstream.has "stdio" then stubs["p" .. i] = upstream.start { revision = revision, transport = "stdio" } end
    end
    g = upstream.gateway(stubs)
  end)
  lazy_teardown(function()
    local _ <close> = g -- luacheck: ignore 211
    for _, u in pairs(stubs) do u:close() end
  end)

  for _, asks in ipairs(upstream.revisions) do
    for i, serves in ipairs(upstream.revisions) do
      local oldest = older(asks, serves)

      it(("gets what it should: %s before %s"):format(asks, serves), function()
        for _, kind in ipairs { "r", upstream.has "stdio" and "p" or nil } do
          local c <close> = g:client(asks)
          local prefix = kind .. i .. "_"
          local found = gather(c, prefix)
          local wanted = expected[oldest]
          for _, list in ipairs { "tools/list", "prompts/list" } do
            for n, entry in ipairs(wanted.lists[list]) do
              local got = found.lists[list][n]
              entry.execution = nil -- no tool is run as a task
              -- the client's revision has no title in annotations
              if got and asks == "2025-03-26" and serves > asks and got.annotations and not entry.annotations then
                got.annotations.title = nil
                if not next(got.annotations) then got.annotations = nil end
              end
              assert.same(entry, got, ("%s, entry %d"):format(list, n))
            end
            assert.equal(#wanted.lists[list], #found.lists[list])
          end
          for n, request in ipairs(REQUESTS) do
            if request[1] ~= "resources/read" and not (request[2].ref or {}).uri then
              assert.same(comparable(wanted.answers[n]), comparable(found.answers[n]), request[1] .. " " .. cjson.encode(request[2]))
            end
          end
        end
      end)

      it(("gets kinds of content that its revision has: %s before %s"):format(asks, serves), function()
        local c <close> = g:client(asks)
        local blocks = c:result("tools/call", { name = ("r%d_kinds"):format(i), arguments = {} }).content
        assert.equal(serves >= "2025-06-18" and 5 or serves >= "2025-03-26" and 4 or 3, #blocks)
        assert.same({ type = "text", text = "café", annotations = { audience = { "user" }, priority = 1 } }, blocks[1])
        assert.same({ type = "image", data = "AAEC", mimeType = "image/png" }, blocks[2])
        assert.same({ type = "resource", resource = { uri = "stub://text", mimeType = "text/plain", text = "hello" } }, blocks[3])
        if blocks[4] and asks >= "2025-03-26" then
          assert.same({ type = "audio", data = "AAEC", mimeType = "audio/wav" }, blocks[4])
        elseif blocks[4] then
          assert.is_true(blocks[4].type == "text" or blocks[4].resource.blob == "AAEC")
        end
        if blocks[5] and asks >= "2025-06-18" then
          assert.same({ type = "resource_link", uri = "stub://text", name = "text", mimeType = "text/plain" }, blocks[5])
        elseif blocks[5] then
          assert.equal("text", blocks[5].type)
          assert.is_truthy(blocks[5].text:find("stub://text", 1, true))
        end
      end)
    end
  end
end)

describe("resources of one upstream", function()
  for _, serves in ipairs(upstream.revisions) do
    it("are read, completed and refused in every revision, from an upstream of " .. serves, function()
      local lone <close> = upstream.start { revision = serves, transport = serves == "2024-11-05" and upstream.has "sse" and "sse" or "http" }
      local g <close> = upstream.gateway({ one = lone })
      for _, asks in ipairs(upstream.revisions) do
        local oldest = older(asks, serves)
        local u <close> = upstream.start { revision = oldest, transport = "stdio" }
        local here <close> = direct.start(u, oldest)
        local c <close> = g:client(asks)
        for _, list in ipairs { LISTS[3], LISTS[4] } do
          local function entries(from)
            local found = from:result(list[1], {})[list[2]]
            table.sort(found, function(a, b) return a[list[3]] < b[list[3]] end)
            return found
          end
          assert.same(entries(here), entries(c), asks .. " " .. list[1])
        end
        for _, request in ipairs(REQUESTS) do
          if request[1] == "resources/read" or (request[2].ref or {}).uri then
            assert.same(without_hints(here:result(request[1], request[2])), without_hints(c:result(request[1], request[2])), asks .. " " .. request[1])
          end
        end
        local missing = c:call("resources/read", { uri = "stub://missing" }).error
        assert.equal(asks == NEWEST and -32602 or -32002, missing.code)
        assert.same({ uri = "stub://missing" }, missing.data)
      end
    end)
  end
end)
