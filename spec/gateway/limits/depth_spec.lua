-- B-63: arrays and objects may be nested 128 deep. Deeper ones are refused, even with a small C stack, whatever their
-- source.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local wire = require "spec.helpers.wire"

local DEPTHS = { 64, 128, 129, 1000, 100000, 2000000 }

-- JSON of exactly this depth. Each shape: opening text, innermost value, closing text.
local shapes = {
  arrays = { "[", "1", "]" },
  objects = { '{"a":', "1", "}" },
  mixed = { '[{"a":', "1", "}]" },
}

local function nested(shape, depth)
  local open, value, close = table.unpack(shapes[shape])
  local times = shape == "mixed" and depth // 2 or depth
  local odd = shape == "mixed" and depth % 2 == 1
  return (odd and "[" or "") .. open:rep(times) .. value .. close:rep(times) .. (odd and "]" or "")
end

local scripts = {
  ["tools/echo.lua"] = [[return tool { "Gives what it got.", input = { v = t.any }, function(args) return { v = args.v } end }]],
  ["tools/deep.lua"] = [[return tool { "Gives a deep value.", input = { n = t.integer, how = t.string }, function(args)
    local value = json.array { 1 }
    for _ = 2, args.n do value = args.how == "objects" and { a = value } or json.array { value } end
    return value
  end }]],
  ["tools/text.lua"] = [[return tool { "Reads and writes deep JSON.", input = { n = t.integer }, function(args)
    local value, why = json.decode(("["):rep(args.n) .. ("]"):rep(args.n))
    if value == nil then return nil, why end
    return #json.encode(value)
  end }]],
}

-- In the message, `arguments` begins at depth two.
local function call_with(value)
  return '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"v":' .. value .. "}}}"
end

local function unknown_member(value)
  return '{"jsonrpc":"2.0","x":' .. value .. ',"id":1,"method":"ping"}'
end

local bodies = {
  { "in the arguments", 3, call_with },
  { "in a member nobody knows", 1, unknown_member },
  { "never closed", 1, function(value) return '{"jsonrpc":"2.0","id":1,"x":' .. value:match "^[^1]+" end },
  { "as the whole body", 0, function(value) return value end },
  { "in an id", 1, function(value) return '{"jsonrpc":"2.0","method":"ping","id":' .. value .. "}" end },
}

local config = { limits = { body = "16MiB" } }

-- The error text for a body of this depth.
local function expected(where, depth)
  if depth > 128 or where == "never closed" then
    return 400, -32700
  elseif where == "as the whole body" or where == "in an id" then
    return 400, -32600
  end
  return 200
end

local function play(g)
  local session = { ["Mcp-Session-Id"] = wire.initialize(g, "2025-11-25") }
  local me = g:client "2024-11-05"
  for _, body in ipairs(bodies) do
    local where, outside, make = table.unpack(body)
    for shape in pairs(shapes) do
      for _, depth in ipairs(DEPTHS) do
        local text = make(nested(shape, depth - outside))
        local status, code = expected(where, depth)
        local name = ("%s %s, %d deep"):format(shape, where, depth)
        local response = wire.post(g, text, session)
        assert.equal(status, response.status, name)
        assert.equal(code, (response:json().error or {}).code, name)
        if depth <= 1000 then -- one scanner reads the bodies of all revisions; this case checks the answer of the transport
          response = wire.post(g, text, nil, me.endpoint)
          assert.equal(status == 200 and 202 or status, response.status, name)
          if status == 200 then
            assert.truthy(me.stream:wait_event(1).json.result, name)
          end
        end
      end
    end
  end
  wire.request(g, "DELETE", "/mcp", session)
  me:close()
end

local function play_tools(g)
  local me = g:client "2025-11-25"
  for _, how in ipairs { "arrays", "objects" } do
    for _, depth in ipairs { 64, 127, 128, 129, 1000, 100000 } do
      local result = me:result("tools/call", { name = "deep", arguments = { n = depth, how = how } }, 30)
      if depth <= 128 then
        assert.is_nil(result.isError)
        assert.equal(depth, select(2, result.content[1].text:gsub(how == "arrays" and "%[" or '[{%[]', "")))
      else
        assert.is_true(result.isError)
        assert.truthy(result.content[1].text:match "^internal error %x%x%x%x$")
      end
    end
  end
  for _, depth in ipairs { 1, 128, 129, 100000 } do
    local result = me:result("tools/call", { name = "text", arguments = { n = depth } })
    assert.equal(depth > 128, result.isError == true)
    if depth <= 128 then
      assert.equal(tostring(2 * depth), result.content[1].text)
    end
  end
  me:delete()
  me:close()
end

local IS_SMALL_ENOUGH <const> = not os.getenv "TSAN_OPTIONS" -- ThreadSanitizer's own functions need more

-- A gateway whose C stacks, also those of threads, have 256 KiB.
local function start_small(options)
  local shell = assert(uv.fs_mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/moonpool-XXXXXX")) .. "/small"
  local file = assert(io.open(shell, "w"))
  file:write("#!/bin/sh\nulimit -s 256\nexec '", uv.fs_realpath(gateway.binary), "' \"$@\"\n")
  file:close()
  uv.fs_chmod(shell, 448) -- 0700
  local g = gateway.with_binary(shell, gateway.start, options)
  os.execute("rm -r '" .. shell:match "^(.*)/" .. "'")
  return g
end

-- `moonpool check` of a tool with this source: its exit code and its output.
local function check(size, source)
  local dir = gateway.prepare { scripts = { ["tools/x.lua"] = source } }
  local code, _, err = gateway.run_program("/bin/sh", {
    "-c", (size:find "256" and "ulimit -s 256; " or "") .. 'exec "$0" check moonpool.yaml', uv.fs_realpath(gateway.binary),
  }, { cwd = dir, seconds = 30 })
  os.execute("rm -r '" .. dir .. "'")
  return code, err
end

local stacks = { ["a stack of the usual size"] = gateway.start, ["a stack of 256 KiB"] = IS_SMALL_ENOUGH and start_small or nil }
for size, start in pairs(stacks) do
  describe("on " .. size, function()
    it("JSON of a body is taken to a depth of 128 and refused beyond", function()
      local g <close> = start { config = config, scripts = scripts }
      play(g)
      assert.has_nothing_left(g)
    end)

    it("a tool's value is encoded to a depth of 128, and is the tool's fault beyond", function()
      local g <close> = start { config = config, scripts = scripts }
      play_tools(g)
      assert.has_nothing_left(g)
    end)

    it("a schema or a source nested too deep is refused before anything is served", function()
      for _, case in ipairs {
        { "t.list(", ")", "t.string" }, { "t.object { a = ", "}", "t.string" }, { "(", ")", "t.string" }, { "{", "}", "" },
      } do
        for _, depth in ipairs { 30, 150, 1000, 20000 } do
          local value = case[1]:rep(depth) .. case[3] .. case[2]:rep(depth)
          local code, err = check(size, 'return tool { "X.", input = { v = ' .. value .. " }, function() end }")
          if case[1] == "{" or depth >= (case[1] == "(" and 1000 or 150) then
            assert.equal(78, code, err)
            assert.truthy(err:find("tools/x.lua:1: ", 1, true), err)
          else
            assert.equal(0, code, err)
          end
        end
      end
    end)

    it("a schema built by a loop, which the parser's own limit does not stop, is refused too", function()
      for _, case in ipairs { "v = t.list(v)", "v = t.object { a = v }", "v = t.map(v)", "v = t.any_of { v }" } do
        for _, depth in ipairs { 60, 70, 10000 } do
          local code, err = check(size, ([[
            local v = t.string
            for _ = 1, %d do %s end
            return tool { "X.", input = { v = v }, function() end }]]):format(depth, case))
          assert.equal(depth > 60 and 78 or 0, code, ("%s, %d times: %s"):format(case, depth, err))
        end
      end
    end)
  end)
end
