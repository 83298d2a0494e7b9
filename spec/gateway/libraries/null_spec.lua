-- json.null in scripts: errors name it, and json.decode can leave it out.
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"

describe("json.null", function()
  it("is left out of values decoded with nulls = false", function()
    local server <close> = stub.start(function(_, reply)
      reply:send(200, { ["content-type"] = "application/json" }, '{"items":[1,null,{"a":null,"b":[null]}],"next":null}')
    end)
    local g <close> = gateway.start { workers = 1, scripts = {
      ["tools/decode.lua"] = [==[return tool { "Decodes.", function()
        local function told(text, options) return json.encode(json.decode(text, options)) end
        local gone, why = json.decode("null", { nulls = false })
        return table.concat({ told '{"a":null,"b":1}', told('{"a":null,"b":1}', { nulls = false }), told('{"a":null}', { nulls = false }),
          told('[null,{"x":null}]', { nulls = false }), told('{"a":null}', {}), tostring(gone), tostring(why),
          tostring(select(2, json.decode("{", { nulls = false }))), tostring(json.null) }, " ")
      end }]==],
      ["tools/fetch.lua"] = ([==[return tool { "Fetches.", function()
        local answer = try(http.get "%s/")
        local with, without = try(answer:json()), try(answer:json { nulls = false })
        return json.encode { with.next == json.null, without.next == nil, without.items }
      end }]==]):format(server.url),
      ["tools/wrong.lua"] = [==[return tool { "Wrong.", input = { n = t.integer }, function(args)
        local null = json.null
        local tries = { function() return null .. "x" end, function() return "x" .. null end, function() return null.page end, function() null.page = 1 end,
          function() return null + 1 end, function() return #null end, function() return (null()) end, function() return null < 1 end,
          function() return (json.decode("1", { null = false })) end, function() return (json.decode("1", { nulls = 1 })) end }
        return tries[args.n]()
      end }]==],
    }, config = { scripts = { path = "scripts", allow = { net = { "127.0.0.1:" .. server.url:match "%d+$" } } } } }
    local c = g:client "2026-07-28"
    local function text(name, arguments) return c:result("tools/call", { name = name, arguments = arguments }).content[1].text end
    local decoded = text "decode"
    assert.equal([[{"a":null,"b":1} {"b":1} {} [null,{}] {"a":null} nil nil ]], decoded:match "^.* nil nil ")
    assert.match("at byte 2 json.null$", decoded)
    assert.equal('[true,true,[1,null,{"b":[null]}]]', text "fetch")
    for n, said in ipairs {
      "attempt to concatenate json.null", "attempt to concatenate json.null", "attempt to index json.null (field 'page')",
      "attempt to index json.null (field 'page')", "attempt to perform arithmetic on json.null", "attempt to get length of json.null",
      "attempt to call json.null", "attempt to compare json.null", "json.decode has no option 'null'", "json.decode: 'nulls' must be true or false",
    } do
      local id = text("wrong", { n = n }):match "internal error (%x+)"
      assert.match("scripts/tools/wrong.lua:%d+: " .. said:gsub("%p", "%%%0"), g:wait_log("tool failed", { id = id }).fields.why)
    end
    c:close()
  end)
end)
