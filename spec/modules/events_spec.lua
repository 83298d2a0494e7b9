-- The one reader of event streams, for upstreams, for http.stream and for the command line (G-11, B-39, B-40):
-- core/mcp/event_reader.c.
local events = require("modules").events

-- The resident bytes of this process.
local function resident()
  local file <close> = assert(io.open "/proc/self/statm")
  return tonumber(file:read("a"):match "^%d+ (%d+)") * 4096
end

local KEPT <const> = os.getenv "ASAN_OPTIONS" and 256 << 20 or 0 -- bytes that AddressSanitizer keeps of what was freed

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
  { "\xef\xbbdata: a\n\n", {} },
  { "\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", { message "b" } },
  { "\xef\xbb\xbf\rdata: a\r\n\r\n", { message "a" } },
  { "data: a\ndata\ndata:\n\n", { message "a\n\n" } },
  { ":data: no\n: \n::\nid:  two \nevent: x:y\ndata: a:b\n\n", { message("a:b", " two ", "x:y") } },
}

describe("an event stream", function()
  it("is the same in every legal spelling, however it is cut", function()
    for _, row in ipairs(spellings) do
      for _, size in ipairs { 1, 2, 3, 5, 1000 } do assert.same(row[2], (read(row[1], size)), ("%q by %d"):format(row[1], size)) end
      for cut = 0, #row[1] do
        local parser, all = events.new(1 << 20), {}
        for _, piece in ipairs { row[1]:sub(1, cut), row[1]:sub(cut + 1) } do
          for _, event in ipairs(assert(parser:feed(piece))) do all[#all + 1] = event end
        end
        assert.same(row[2], all, ("%q cut at %d"):format(row[1], cut))
      end
    end
  end)

  it("has the time after which to reconnect", function()
    local _, parser = read("retry: 250\nretry: 99x\n\n", 1)
    assert.equal(250, parser:retry())
    for _, text in ipairs { "retry\n\n", "retry: -1\n\n", "retry: 1.5\n\n", "retry: 1234567890\n\n" } do
      _, parser = read(text, 1)
      assert.is_nil(parser:retry(), text)
    end
  end)

  it("has the id of the last event, also of one without data", function()
    local _, parser = read("id: 1\ndata: a\n\nid: 2\n\n", 3)
    assert.equal("2", parser:last_id())
    _, parser = read("id: 1\ndata: a\n\nid: 2\n", 3)
    assert.equal("1", parser:last_id(), "the event of the second id is not complete")
    _, parser = read("data: a\n\n", 3)
    assert.is_nil(parser:last_id())
  end)

  it("of 200,000 comments costs neither memory nor depth", function()
    local parser = events.new(1000)
    local pings, before = (": ping\n\n"):rep(1000), resident()
    for _ = 1, 200 do assert.same({}, parser:feed(pings)) end
    assert.same({ message "a" }, parser:feed "data: a\n\n")
    assert.is_true(resident() - before < (1 << 20) + KEPT)
  end)

  it("of events at the limit costs no more memory than one of them", function()
    local parser, text = events.new(1 << 20), "data: " .. ("x"):rep((1 << 20) - 6) .. "\n\n"
    for _ = 1, 5 do assert.equal(1, #parser:feed(text)) end
    collectgarbage()
    local before = resident()
    for _ = 1, 200 do
      assert.equal(1, #parser:feed(text))
      collectgarbage()
    end
    assert.is_true(resident() - before < (16 << 20) + KEPT)
  end)

  it("ends at a line that is too long, whether it ends or not, and at data that is too large", function()
    for _, text in ipairs { "data: " .. ("x"):rep(2000) .. "\n\n", ("x"):rep(1001), ("data: " .. ("x"):rep(400) .. "\n"):rep(3), ("data:\n"):rep(1002) } do
      local found, why = events.new(1000):feed(text)
      assert.is_nil(found)
      assert.matches("1000 bytes", why)
    end
    assert.equal(1, #assert(events.new(1000):feed("data: " .. ("x"):rep(994) .. "\n\n")))
    assert.equal(1, #assert(events.new(1000):feed(("data: " .. ("x"):rep(499) .. "\n"):rep(2) .. "data\n\n")))
  end)

  it("that failed stays failed", function()
    local parser = events.new(10)
    assert.is_nil(parser:feed(("x"):rep(11)))
    local found, why = parser:feed "data: a\n\n"
    assert.is_nil(found)
    assert.equal("a line is longer than 10 bytes", why)
  end)
end)
