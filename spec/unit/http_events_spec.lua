-- Event streams of other servers, parsed as they arrive (G-11, B-39, B-40).
package.path = "./lua/?.lua;./lua/?/init.lua;" .. package.path
local events = require "moonpool.lib.http.events"

-- All events of `text`, fed in pieces of `size` bytes.
local function read(text, size)
  local parser, all = events.new(1 << 20), {}
  for from = 1, #text, size do
    for _, event in ipairs(assert(parser:feed(text:sub(from, from + size - 1)))) do all[#all + 1] = event end
  end
  return all, parser
end

local function message(data, id, kind) return { event = kind or "message", data = data, id = id } end

local spellings = {
  { "data: {\"a\":1}\n\n", { message '{"a":1}' } },
  { "data:{\"a\":1}\n\n", { message '{"a":1}' } },
  { "data:  two spaces\n\n", { message " two spaces" } },
  { "data: {\ndata: \"a\":1}\n\n", { message '{\n"a":1}' } },
  { "data: a\r\n\r\ndata: b\r\n\r\n", { message "a", message "b" } },
  { "data: a\r\rdata: b\r\r", { message "a", message "b" } },
  { "data: a\r\n\rdata: b\n\r\n", { message "a", message "b" } },
  { "\xef\xbb\xbfdata: a\n\n", { message "a" } },
  { "data: \xef\xbb\xbf\n\n", { message "\xef\xbb\xbf" } },
  { ": a comment\n:\ndata: a\n: more\n\n", { message "a" } },
  { "event: endpoint\ndata: /x\n\ndata: y\n\n", { message("/x", nil, "endpoint"), message "y" } },
  { "event:\ndata: a\n\n", { message "a" } },
  { "id: 7\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", { message("a", "7"), message("b", "7"), message "c" } },
  { "id: 1\n\ndata: a\n\n", { message("a", "1") } },
  { "id: 1\0\ndata: a\n\n", { message "a" } },
  { "retry: 250\nretry: soon\ndata: a\n\n", { message "a" } },
  { "data\n\ndata:\n\n", { message "", message "" } },
  { "unknown: x\nDATA: y\ndata : z\ndata: a\n\n", { message "a" } },
  { "event: x\n\ndata: a\n\n", { message "a" } },
  { "\n\n\ndata: a\n\n\n", { message "a" } },
  { "data: a\n\ndata: cut off", { message "a" } },
  { "data: a\n\ndata: no empty line\n", { message "a" } },
}

describe("an event stream", function()
  it("is the same in every legal spelling, however it is cut", function()
    for _, row in ipairs(spellings) do
      for _, size in ipairs { 1, 2, 3, 5, 1000 } do assert.same(row[2], (read(row[1], size)), ("%q by %d"):format(row[1], size)) end
    end
  end)

  it("has the time after which to reconnect", function()
    local _, parser = read("retry: 250\nretry: 99x\n\n", 1)
    assert.equal(250, parser.retry)
  end)

  it("of 200,000 comments costs neither memory nor depth", function()
    local parser = events.new(1000)
    for _ = 1, 200 do assert.same({}, parser:feed((": ping\n\n"):rep(1000))) end
    assert.equal("", parser.rest)
    assert.same({ message "a" }, parser:feed "data: a\n\n")
  end)

  it("ends at a line that is too long, whether it ends or not, and at data that is too large", function()
    for _, text in ipairs { "data: " .. ("x"):rep(2000) .. "\n\n", ("x"):rep(1001), ("data: " .. ("x"):rep(400) .. "\n"):rep(3), ("data:\n"):rep(1002) } do
      local found, why = events.new(1000):feed(text)
      assert.is_nil(found)
      assert.matches("1000 bytes", why)
    end
    assert.equal(1, #assert(events.new(1000):feed("data: " .. ("x"):rep(994) .. "\n\n")))
  end)
end)
