-- `require "cjson"` is lua-cjson with bounds: no script can make it recurse without end, block the worker, or fill
-- memory that no limit counts.
local code = require "spec.helpers.code"
local memory = require "spec.helpers.memory"

local function start() return code.start { workers = 1, env = memory.environment() } end

local function why_of(me, text)
  return code.run(me, ("local cjson = require 'cjson' local ok, why = pcall(function() %s end) return ok and 'no error' or tostring(why)"):format(text), 30)
end

-- Processor time of the process so far, in seconds; its memory in MiB.
local function seconds_of(g)
  local file <close> = assert(io.open("/proc/" .. g.pid .. "/stat"))
  local user, system = file:read("a"):match "^.*%) %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+) (%d+)"
  return (tonumber(user) + tonumber(system)) / 100
end

local function mebibytes_of(g) return g:rss() / (1 << 20) end

describe("the settings of cjson", function()
  it("have bounds on depth, in every spelling and in every module", function()
    local g <close> = start()
    local me = g:client "2026-07-28"
    for _, module in ipairs { "cjson", "cjson.new()", "cjson.new().new()", "require 'cjson.safe'", "require('cjson.safe').new()" } do
      for _, setter in ipairs { "encode_max_depth", "decode_max_depth" } do
        for _, depth in ipairs { "1001", "1e8", "'100000000'", "math.maxinteger", "0x7fffffff" } do
          local why = why_of(me, ("(%s).%s(%s)"):format(module, setter, depth))
          assert.truthy(why:find("cjson." .. setter .. ": the depth is at most 1000", 1, true), module .. " " .. depth .. ": " .. why)
        end
        assert.equal(7, code.run(me, ("local cjson = require 'cjson' local m = %s m.%s(7) return m.%s()"):format(module, setter, setter)))
      end
    end
    local why = why_of(me, "local t = {} for i = 1, 400000 do t = { t } end cjson.encode_max_depth(1000) cjson.encode(t)")
    assert.truthy(why:find("excessive nesting", 1, true), why)
    why = why_of(me, "cjson.decode_max_depth(1000) cjson.decode(('['):rep(90000) .. (']'):rep(90000))")
    assert.truthy(why:find("Found too many nested data structures", 1, true), why)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("are those of one script, and work as lua-cjson documents them", function()
    local g <close> = start()
    local me = g:client "2026-07-28"
    assert.same({ "[1,null,3]", "{\"a\":0.33}", "nil", true, "[null]", false }, code.run(me, [[
      local one = require "cjson"
      one.encode_number_precision(2)
      local keeps = one.encode_keep_buffer(false)
      local safe = require "cjson.safe"
      local value, why = safe.decode "{"
      return { one.encode { 1, nil, 3 }, one.encode { a = 1 / 3 }, tostring(value), type(why) == "string", one.encode { one.null }, keeps }]]))
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("cjson.encode", function()
  local offenders = {
    ["more than 100000 values"] = {
      "local t = {} for i = 1, 40 do t = { t, t } end cjson.encode(t)",
      "local t = {} t[1] = t t[2] = t cjson.encode(t)",
      "local t = {} for i = 1, 200000 do t[i] = i end cjson.encode(t)",
      "cjson.encode_sparse_array(false, 0) cjson.encode { [2000000000] = 1 }",
      "cjson.encode_sparse_array(true, 0) local t = {} for i = 1, 100 do t[i] = { [90000] = 1 } end cjson.encode(t)",
    },
    ["more than 4194304 bytes"] = {
      "cjson.encode(('x'):rep(5000000))", "cjson.encode(('\\0'):rep(1000000))", "cjson.encode { [('x'):rep(5000000)] = 1 }",
      "local s, t = ('x'):rep(1000000), {} for i = 1, 1000 do t[i] = s end cjson.encode(t)",
    },
    ["takes too long"] = { [[local t, all = {}, {}
      for i = 1, 1000000 do t[i] = i end
      for i = 1, 1000000 do t[i] = nil end
      for i = 1, 90000 do all[i] = t end
      cjson.encode(all)]] },
  }

  it("counts first, and says which bound it is", function()
    local g <close> = start()
    local me = g:client "2026-07-28"
    for told, list in pairs(offenders) do
      for _, text in ipairs(list) do
        local before = seconds_of(g)
        local why = why_of(me, text)
        -- a busy machine may reach the time limit before the limit of values
        assert.truthy(why:find(told, 1, true) or why:find("takes too long", 1, true), text .. ": " .. why)
        assert.truthy(seconds_of(g) - before < 4, text)
      end
    end
    local why = code.run(me, "return select(2, (require 'cjson.safe').encode(('x'):rep(5000000)))")
    assert.truthy(why:find("more than 4194304 bytes", 1, true), why)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("keeps no large buffers, in however many modules", function()
    local g <close> = start()
    local me = g:client "2026-07-28"
    local before = mebibytes_of(g)
    assert.equal(3600002, code.run(me, [[
      local cjson, kept, text = require "cjson", {}, ("\1"):rep(600000)
      local size
      for i = 1, 50 do
        kept[i] = cjson.new()
        kept[i].encode_keep_buffer(true)
        size = #kept[i].encode(text)
        pcall(kept[i].encode, { text:sub(1, 10000), print })
        sleep(0)
      end
      return size]], 60))
    assert.truthy(mebibytes_of(g) - before < 130, "50 buffers of 3.6 MB are 180 MB, and what the call may hold is 64")
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("cjson.decode", function()
  it("takes texts of 4 MiB and 100000 values", function()
    local g <close> = start()
    local me = g:client "2026-07-28"
    for told, text in pairs {
      ["more than 4194304 bytes"] = "cjson.decode((' '):rep(5000000))",
      ["more than 100000 values"] = "cjson.decode('[' .. ('0,'):rep(100000) .. '0]')",
      ["no error"] = "assert(#cjson.decode('[' .. ('0,'):rep(90000) .. '\"' .. ('[,'):rep(500000) .. '\"]') == 90001)",
    } do
      local why = why_of(me, text)
      assert.truthy(why:find(told, 1, true), text .. ": " .. why)
    end
    local value = code.run(me, [[local decode = require("cjson.safe").decode
      return { decode((' '):rep(5000000)) == nil, select(2, decode(('['):rep(200000))) }]])
    assert.is_true(value[1])
    assert.truthy(value[2]:find "more than 100000 values")
    me:close()
    assert.has_nothing_left(g)
  end)

  it("leaves nothing behind where memory ends in it", function()
    local g <close> = code.start { workers = 1, env = memory.environment(), config = { limits = { call = { memory = "16MiB" } } } }
    local me = g:client "2026-07-28"
    local before = mebibytes_of(g)
    for _ = 1, 20 do
      local answer = me:call("tools/call", code.params [[local cjson, kept = require "cjson", {}
        local text = '["' .. ('x'):rep(4000000) .. '"]'
        while true do kept[#kept + 1] = cjson.decode(text) end]], 30)
      assert.equal("the call took more memory than limits.call.memory", answer.error.message)
    end
    assert.truthy(mebibytes_of(g) - before < 60, "20 buffers of 4 MB are 80 MB, and what a call may hold is 16")
    me:close()
    assert.has_nothing_left(g)
  end)
end)
