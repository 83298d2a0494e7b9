-- For speed, the check of a request's framing compares few header names. This spec compares it with the plain rule,
-- which looks at every line and every name.
local framing = require("modules").net.framing

-- The plain rule: nil if the head is accepted, else a word of the refusal.
local function rule(head)
  local lines = {}
  for line in head:gmatch "([^\n]*)\n" do lines[#lines + 1] = line end
  local at = 1
  if lines[1] == "\r" then at = 2 end
  local request = lines[at]
  if not request or request:sub(-1) ~= "\r" then return "CR LF" end
  local method, target = request:sub(1, -2):match "^([^ ]*) ?([^ ]*)"
  local scheme = target:match "^([^:]*)://"
  if target:sub(1, 1) ~= "/" and not (method == "OPTIONS" and target == "*") and
    not (scheme and (scheme:lower() == "http" or scheme:lower() == "https")) then
    return "target"
  end
  local counts = { ["content-length"] = 0, ["transfer-encoding"] = 0, host = 0 }
  for i = at + 1, #lines do
    local line = lines[i]
    if line:sub(-1) ~= "\r" then return "CR LF" end
    if line == "\r" then
      local framed = counts["content-length"] + counts["transfer-encoding"]
      if framed > 1 or counts.host > 1 then return "more than one" end
      return counts["transfer-encoding"] > 0 and "chunked" or nil
    end
    local name = line:sub(1, -2):match "^[^:]*"
    counts[name:lower()] = (counts[name:lower()] or 0) + 1
    if name == "" or name:find "^[ \t]" then return "CR LF" end
  end
  return "CR LF"
end

local function check(head)
  local fault, word = framing(head), rule(head)
  if word == nil then
    assert.is_nil(fault, head)
  else
    assert.truthy(fault, head)
    assert(fault:find(word, 1, true), ("%q: %s, expected %s"):format(head, fault, word))
  end
  return word
end

describe("the framing of a request", function()
  it("is plain or not as the rule says", function()
    local plain = "POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Type: x\r\ncontent-length: 2\r\nTe: x\r\nHosts: b\r\n\r\n{}"
    assert.is_nil(check(plain))
    assert.is_nil(check("\r\n" .. plain))
    for _, head in ipairs { "", "\n", "\r\n", "\r\n\r\n", "GET / HTTP/1.1", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\n\r\n", "GET / HTTP/1.1\r\n\n",
      "GET mcp HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n:a\r\n\r\n", "GET / HTTP/1.1\r\n a: b\r\n\r\n", "GET / HTTP/1.1\r\na: b\r\n\tc\r\n\r\n",
      "GET / HTTP/1.1\r\nhost\r\nhost:\r\n\r\n", "GET / HTTP/1.1\r\nHOST:a\r\nhOst:b\r\n\r\n", "GET / HTTP/1.1\r\ncontent-length\r\nContent-Length: 1\r\n\r\n",
      "GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n", "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" } do
      assert.truthy(check(head), head)
    end
  end)

  it("is that of the rule for heads that are changed at random", function()
    local model = "POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\nTE: x\r\nH: y\r\n\r\n"
    local pieces = { "\r", "\n", "\r\n", ":", " ", "\t", "Host", "host:", "\r\nhost: b", "\r\ncontent-length: 1", "\r\nTransfer-Encoding: chunked", "t", "C",
      "\r\nContent-Length", "", "\0" }
    local seed = os.time()
    math.randomseed(seed)
    local plain = 0
    for _ = 1, 20000 do
      local head = model
      for _ = 1, math.random(3) do
        local at = math.random(#head)
        head = head:sub(1, at - 1) .. pieces[math.random(#pieces)] .. head:sub(at + math.random(0, 2))
      end
      if check(head) == nil then plain = plain + 1 end
    end
    assert(plain > 100 and plain < 19900, "the heads are all alike; seed " .. seed)
  end)
end)
