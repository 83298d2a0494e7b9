-- B-66: bytes that are not UTF-8 are a parse error and do not end the connection; valid text comes back byte for byte,
-- however TCP cuts it.
local cjson = require "cjson"
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local wire = require "spec.helpers.wire"

local scripts = {
  ["tools/echo.lua"] = [[return tool { "Echo.", input = { v = t.any }, function(args, call)
    call:progress(1, nil, type(args.v) == "string" and args.v or nil)
    return args.v
  end }]],
}

local function call(raw, token)
  return ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"v":%s}%s}}')
    :format(raw, token and ',"_meta":{"progressToken":"t"}' or "")
end

-- Inside a JSON string.
local broken = {
  "\xff\xfe", "\xff", "\xfe", "\x80", "\xbf", "a\xc3", "\xc3(", "\xc0\xaf", "\xc0\x80", "\xc1\xbf", "\xe0\x80\xaf", "\xe0\x9f\xbf", "\xf0\x80\x80\xaf",
  "\xf0\x8f\xbf\xbf", "\xed\xa0\x80", "\xed\xbf\xbf", "\xed\xa0\xbd\xed\xb8\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf8\x88\x80\x80\x80",
  "\xfc\x84\x80\x80\x80\x80", "\xe2\x82", "\xf0\x9f\x8c", "\xe2\x28\xa1", "x\xf0\x9f\x8cx", [[\ud800]], [[\udc00]], [[\ud83c]], [[\udf19\ud83c]],
  [[\ud83c\ud83c]], [[\ud83cx]], [[\ud83c\u0041]], [[\u12]], [[\x41]], "\0", "\31", "\r\n", "\n", "\t",
}

-- In place of, or around, a whole body.
local function around(body)
  return {
    "\xef\xbb\xbf" .. body, body .. "\xef\xbb\xbf", "\xff\xfe" .. body, "\xfe\xff" .. body, body .. "\0", "\0" .. body, body .. "\xff",
    (body:gsub(".", "%0\0")), (body:gsub(".", "\0%0")), "\xc2\xa0" .. body, "\xe2\x80\x8b" .. body, body .. "\x1a", "\12" .. body,
  }
end

-- Each row: the text as JSON writes it, and the text that it represents.
local whole = {
  { '"ü"', "ü" }, { '"€"', "€" }, { '"🌙"', "🌙" }, { [["\ud83c\udf19"]], "🌙" }, { [["\u00fc"]], "ü" }, { '"\u{10FFFF}"', "\u{10FFFF}" },
  { [["\udbff\udfff"]], "\u{10FFFF}" }, { '"\u{FFFE}\u{FFFF}"', "\u{FFFE}\u{FFFF}" }, { '"\u{FEFF}x"', "\u{FEFF}x" }, { '"\u{7F}\u{80}"', "\u{7F}\u{80}" },
  { '"\u{7FF}\u{800}\u{D7FF}\u{E000}\u{FFFD}"', "\u{7FF}\u{800}\u{D7FF}\u{E000}\u{FFFD}" }, { '"\u{10000}"', "\u{10000}" }, { [["\u0000"]], "\0" },
  { [["a\u0000b"]], "a\0b" }, { [["\r\n"]], "\r\n" }, { '"\u{2028}\u{2029}\u{85}"', "\u{2028}\u{2029}\u{85}" }, { [["\u2028\u2029"]], "\u{2028}\u{2029}" },
  { '"e\u{301}é"', "e\u{301}é" }, { '"\u{202E}abc\u{202C}"', "\u{202E}abc\u{202C}" }, { '"' .. ("日本語🌙"):rep(5000) .. '"', ("日本語🌙"):rep(5000) },
  { [["\\\"\/\b\f\t"]], "\\\"/\b\f\t" },
}

local function each_transport(g, story)
  local session = { ["Mcp-Session-Id"] = wire.initialize(g, "2025-11-25") }
  local sse = g:client "2024-11-05"
  story("Streamable HTTP", "/mcp", session)
  story("HTTP+SSE", sse.endpoint, {}, sse.stream)
  sse:close()
  wire.request(g, "DELETE", "/mcp", session)
  assert.has_nothing_left(g)
end

-- POST on a connection that is kept; `cut`: the body arrives in pieces of `cut` bytes.
local function post(connection, path, headers, body, cut)
  local all = { Accept = wire.both, ["Content-Type"] = "application/json", ["Content-Length"] = #body }
  for name, value in pairs(headers) do all[name] = value end
  connection:send { method = "POST", path = path, headers = all, body = cut and "" or body }
  for i = 1, cut and #body or 0, cut or 1 do
    connection:send_raw(body:sub(i, i + cut - 1))
    uv.run "nowait"
  end
  return connection:read_response()
end

describe("a body that is not UTF-8, begins with a byte order mark, or escapes a lone surrogate", function()
  it("is a parse error, after which its connection goes on", function()
    local g <close> = gateway.start { scripts = scripts }
    each_transport(g, function(name, path, headers)
      local connection <close> = client.connect(g)
      local bodies = around(call '"x"')
      for _, bytes in ipairs(broken) do
        bodies[#bodies + 1] = call('"' .. bytes .. '"')
        bodies[#bodies + 1] = call('{"' .. bytes .. '":1}')
        bodies[#bodies + 1] = '{"jsonrpc":"2.0","id":1,"method":"ping' .. bytes .. '"}'
        bodies[#bodies + 1] = '{"jsonrpc":"2.0","id":"' .. bytes .. '","method":"ping"}'
        bodies[#bodies + 1] = '{"jsonrpc":"2.0","id":1,"method":"ping","' .. bytes .. '":1}'
      end
      for _, body in ipairs(bodies) do
        local response = post(connection, path, headers, body)
        local answer = response:json()
        assert.same({ 400, -32700 }, { response.status, answer.error.code }, ("%s: %q"):format(name, body:sub(1, 120)))
        assert.is_nil(answer.id)
        assert.truthy(utf8.len(response.body))
      end
      assert.is_false(connection:is_closed_by_peer())
    end)
  end)
end)

describe("text that is UTF-8", function()
  it("comes back as it was, in answers, events and ids, cut anywhere on its way", function()
    local g <close> = gateway.start { scripts = scripts }
    each_transport(g, function(name, path, headers, stream)
      local connection <close> = client.connect(g)
      local function answer_to(body, cut)
        local carrier = stream or connection
        carrier.events = {}
        local response = post(connection, path, headers, body, cut)
        if response.status == 202 or response.sse then
          return carrier:wait_event(function(event) return event.json and not event.json.method end).json, carrier
        end
        assert.equal(200, response.status, response.body)
        return response:json(), carrier
      end
      for _, row in ipairs(whole) do
        for _, cut in ipairs { 0, #row[1] > 1000 and 997 or 1 } do
          assert.equal(row[2], answer_to(call(row[1]), cut > 0 and cut).result.content[1].text, name .. ": " .. row[1]:sub(1, 80))
        end
        local answer, carrier = answer_to(call(row[1], true))
        assert.equal(row[2], answer.result.content[1].text)
        local told = carrier:messages()[1].params.message
        assert.is_true(told == row[2] or stream ~= nil, name) -- 2024-11-05 has no progress messages
        if #row[1] < 200 then
          answer = answer_to('{"jsonrpc":"2.0","id":' .. row[1] .. ',"method":"ping"}')
          assert.equal(row[2], answer.id)
          answer = answer_to(call("{" .. row[1] .. ":" .. row[1] .. "}"))
          assert.equal(row[2], cjson.decode(answer.result.content[1].text)[row[2]])
        end
      end
      assert.is_false(connection:is_closed_by_peer())
    end)
  end)

  it("may be surrounded by any JSON white space", function()
    local g <close> = gateway.start { scripts = scripts }
    each_transport(g, function(_, path, headers, stream)
      local connection <close> = client.connect(g)
      for _, space in ipairs { " ", "\r\n", "\n\n", "\t", "\r" } do
        local body = call('"x"'):gsub("[{}:,]", space .. "%0" .. space)
        assert.equal(stream and 202 or 200, post(connection, path, headers, space .. body .. space).status)
      end
    end)
  end)
end)
