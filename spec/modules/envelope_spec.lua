-- A message has two readers: one that is quick and takes plain requests of tools/call alone, and one for all messages.
-- What the quick one takes, the other reads as the same.
local modules = require "modules"
local read, json = modules.envelope.read, modules.json.lua

local META <const> = '"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}'

local function message(params, id)
  return '{"jsonrpc":"2.0","id":' .. (id or "1") .. ',"method":"tools/call","params":' .. params .. "}"
end

local function call(arguments, meta)
  return message('{"name":"add","arguments":' .. arguments .. ',"_meta":{' .. (meta or META) .. "}}")
end

-- Both readers agree on `text`; returns the arguments that the quick one found, or nil.
local function agree(text, values)
  local general, quick, flat = read(text, values)
  if quick then
    assert.same(general, quick, text)
    assert.equal(0, general.kind, text)
  end
  return flat, general
end

-- The value of an argument.
local function value_of(flat)
  if flat.type == "string" then return json.decode('"' .. flat.value .. '"') end
  return json.decode(flat.value)
end

describe("the quick reader of a message", function()
  it("takes the requests that clients send", function()
    local names = {
      [call '{"a":1,"b":2}'] = "a=1 b=2",
      [call '{}'] = "",
      [message '{"name":"add"}'] = "",
      [message('{"name":"","arguments":{"a":true}}', '"x"')] = "a=true",
      [call(' { "a" : -0.5 , "b" : "text\\n" , "c" : null, "d":false } ')] = 'a=-0.5 b="text\\n" c=null d=false',
      [call '{"at":{"x":[1,{"y":2}]},"list":[]}'] = 'at={"x":[1,{"y":2}]} list=[]',
      [call('{"a":"é€😀"}', META .. ',"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"progressToken":7')] = "a=é€😀",
      [message '{"_meta":{"progressToken":"p","vendor/id":"7"},"arguments":{"q":"a"},"name":"find"}'] = "q=a",
      ['\t{"params":{"name":"add"},"method":"tools/call","id":-3,"jsonrpc":"2.0"}\r\n'] = "",
    }
    for text, expected in pairs(names) do
      local flat = assert(agree(text), text)
      for i, argument in ipairs(flat) do flat[i] = argument.name .. "=" .. argument.value end
      assert.equal(expected, table.concat(flat, " "))
    end
  end)

  it("takes slashes that are escaped, as some encoders write them", function()
    local escaped = call('{"a":1}', META .. ',"progressToken":1'):gsub("/", "\\/")
    assert.equal(1, #assert(agree(escaped)))
    assert.is_nil((agree((escaped:gsub('"progressToken":1', META)))))
    assert.is_nil((agree((escaped:gsub('"progressToken"', '"vendor\\/id"')))))
  end)

  it("tells the types of arguments apart", function()
    local flat = agree(call '{"a":1,"b":1.0,"c":"","d":"\\"","e":true,"f":false,"g":null,"h":{},"i":[]}')
    local types = {}
    for i, argument in ipairs(flat) do types[i] = argument.type end
    assert.equal("integer float string escaped true false null object array", table.concat(types, " "))
  end)

  it("leaves to the general one what it does not know", function()
    local seventeen = {}
    for i = 1, 17 do seventeen[i] = ('"a%d":%d'):format(i, i) end
    for _, text in ipairs {
      "", "{", "{}", "[]", "[" .. call "{}" .. "]", call "{}" .. "x", "\xef\xbb\xbf" .. call "{}", call "{}":sub(1, -2),
      (call "{}":gsub("tools/call", "tools/list")), (call "{}":gsub("tools/call", "tools\\u002fcall")), (call "{}":gsub('"2.0"', '"1.0"')),
      (call "{}":gsub('"id":1,', "")), message("{}", "1.0"), message('{"name":"a"}', "null"), message('{"name":"a"}', '"\\n"'),
      message "null", message "{}", message '{"name":1}', message '{"name":"a\\u0041"}', message '{"name":"a","arguments":null}',
      message '{"name":"a","arguments":[]}', message '{"name":"a","task":{}}', message '{"name":"a","requestState":"x"}',
      message '{"name":"a","inputResponses":{}}', message '{"name":"a","name":"b"}', message '{"name":"a","_meta":null}',
      call '{"a":1e3}', call '{"a":01}', call '{"a":1.}', call '{"a":.5}', call '{"a":+1}', call '{"a":-}', call '{"a":tru}',
      call '{"a":"\\u00e9"}', call '{"a":"\\x"}', call '{"a":"\1"}', call '{"a":"\xff"}', call '{"a":"\xed\xa0\x80"}', call '{"\\u0061":1}',
      call '{"a":1,}', call '{,"a":1}', call '{"a" 1}', call '{"a":1 "b":2}', call '{"a":[1,]}', call '{"a":[1 2]}',
      call("{" .. table.concat(seventeen, ",") .. "}"), call('{"a":' .. ("["):rep(40) .. ("]"):rep(40) .. "}"),
      call("{}", META .. ',"io.modelcontextprotocol/logLevel":"debug"'), call("{}", '"io.modelcontextprotocol/protocolVersion":1'),
      call("{}", '"io.modelcontextprotocol/clientCapabilities":[]'), call("{}", '"progressToken":1.5'), call("{}", '"progressToken":null'),
      (call "{}":gsub('"id"', '"result":{},"id"')), (call "{}":gsub('"id"', '"more":1,"id"')),
    } do
      assert.is_nil((agree(text)), text)
    end
  end)

  it("gives up where an object repeats a key, at every depth", function()
    for _, text in ipairs {
      (call "{}":gsub('"id":1', '"id":1,"id":1')), (call "{}":gsub('"jsonrpc":"2.0"', '%0,%0')), (call "{}":gsub('"method":"tools/call"', '%0,%0')),
      message '{"name":"a"},"params":{"name":"a"}', message '{"name":"a","arguments":{},"arguments":{}}', message '{"name":"a","_meta":{},"_meta":{}}',
      call '{"a":1,"b":2,"a":3}', call '{"a":{"b":1,"b":1}}', call '{"a":[[{"b":{"c":1,"d":2,"c":3}}]]}',
      call("{}", META .. ',"progressToken":1,"progressToken":1'), call("{}", META .. "," .. META), call("{}", '"v/x":1,"v/x":1'),
      call("{}", '"io.modelcontextprotocol/clientCapabilities":{"a":{},"a":{}}'),
      call("{}", '"io.modelcontextprotocol/clientCapabilities":{"a":{"b":{"c":1,"c":1}}}'),
      call("{}", '"io.modelcontextprotocol/clientInfo":{"name":"a","icons":[{"src":"x","src":"y"}]}'),
      call("{}", '"vendor/x":[{"a":1,"a":2}]'),
    } do
      assert.is_nil((agree(text)), text)
    end
  end)

  it("counts values as the general one does, and gives up above the limit", function()
    for text, values in pairs { [call '{"a":1,"b":[1,{"c":2}]}'] = 15, [message '{"name":"add"}'] = 6, [call "{}"] = 10 } do
      assert.truthy(agree(text, values))
      local flat, general = agree(text, values - 1)
      assert.is_nil(flat)
      assert.is_true(general.has_many)
    end
  end)

  it("agrees with the general one, and with the decoder, on messages that are changed at random", function()
    local models = {
      call '{"a":1,"b":2}', call('{"text":"é\\n","deep":{"x":[1,{"y":"z"}],"w":{}},"n":-1.5}', META .. ',"progressToken":"p"'),
      message '{"name":"add","arguments":{"a":true,"b":null},"_meta":{"v/x":{"a":[1,2],"b":{"c":""}}}}', message('{"name":"a"}', '"i"'),
    }
    local pieces = { '"', "\\", "{", "}", "[", "]", ",", ":", " ", "0", "1", "-", ".", "e", "\0", "\xc3", "\xa9", "null", "true", '"a":1,', '"name":',
      '"id":2,', '{"a":1}', '"a"', "\\u0061", "\\n", "\\/", '"_meta":{},', '"arguments":{},' }
    local seed = os.time()
    math.randomseed(seed)
    local taken, count = 0, 20000
    for _ = 1, count do
      local text = models[math.random(#models)]
      for _ = 1, math.random(3) do
        local at, piece = math.random(#text), math.random(3) == 1 and "" or pieces[math.random(#pieces)]
        if math.random(4) == 1 then -- in one case of four a part of the text is repeated
          piece = text:sub(at, at + math.random(12))
        end
        text = text:sub(1, at - 1) .. piece .. text:sub(at + math.random(0, 3))
      end
      local general, quick, flat = read(text)
      if quick then
        taken = taken + 1
        assert.same(general, quick, ("seed %d: %s"):format(seed, text))
        local params = json.decode(quick.params) -- throws where a key is repeated
        local found, members = {}, 0
        for _, argument in ipairs(flat) do found[argument.name] = argument.type == "escaped" and json.decode(argument.value) or value_of(argument) end
        for _ in pairs(params.arguments or {}) do members = members + 1 end
        assert.equal(members, #flat, text)
        if members > 0 then assert.same(params.arguments, found, text) end
      end
    end
    assert(taken > count / 100, "few changed messages are still plain: " .. taken)
  end)
end)
