-- A session's own event stream, the GET of Streamable HTTP, keeps its number and its event count from connection to
-- connection, so that a client that reconnects gets the events it missed (S-25, S-27, S-28; row B-44).
-- proves: resumption 2025-03-26..2025-11-25 http
local gateway = require "spec.helpers.gateway"
local resume = require "spec.helpers.resume"

local scripts = {
  ["resources/notes.lua"] = 'return resource { "Notes.", uri = "notes://{from}/{id}", function(vars) return vars.id end }',
  ["tools/touch.lua"] = [[return tool { "Touch.", input = { from = t.integer, first = t.integer, last = t.integer }, function(args)
    for i = args.first, args.last do
      resource_updated("notes://" .. args.from .. "/" .. i)
      sleep(0.001)
    end
    return "touched"
  end }]],
}

-- A session that subscribes to notes of `count` sources.
local function follower(g, revision, sources, count)
  local me = g:client(revision)
  for from = 1, sources do
    for i = 1, count do
      me:result("resources/subscribe", { uri = ("notes://%d/%d"):format(from, i) })
    end
  end
  return me
end

local function touch(me, from, first, last)
  return me:open("tools/call", { name = "touch", arguments = { from = from, first = first, last = last or first } })
end

-- The next event with data: the URI of its note, and its id.
local function note(stream)
  local event = stream:wait_event(function(event) return event.id ~= nil and event.data ~= "" end)
  return event.json.params.uri:match "[^/]+$", event.id
end

local function notes(stream, count)
  local list, last = {}, nil
  for i = 1, count do
    list[i], last = note(stream)
  end
  return table.concat(list, " "), last
end

local function leave(...)
  for _, me in ipairs { ... } do
    me:delete()
    me:close()
  end
end

for _, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25" } do
  describe("a session's own stream at " .. revision, function()
    it("is stored while its client is away, and continues after the event that the client names", function()
      local g <close> = gateway.start { scripts = scripts, workers = 4 }
      local me, other = follower(g, revision, 1, 9), g:client(revision)
      local own = me:get_stream()
      assert.equal(200, own:head().status)
      assert.equal("touched", touch(other, 1, 1, 3):answer().result.content[1].text)
      local list, last = notes(own, 3)
      assert.same({ "1 2 3", "0-3" }, { list, last })
      own:close()
      g:wait_status(function(status) return status.gauges.streams_open == 0 end)
      touch(other, 1, 4, 6):answer()
      own = resume.after(me, "0-2")
      assert.equal("3 4 5 6", (notes(own, 4)))
      touch(other, 1, 7, 9):answer()
      list, last = notes(own, 3)
      assert.same({ "7 8 9", "0-9" }, { list, last })
      assert.equal(0, g:status().counters.dropped.gone)
      leave(me, other)
      assert.has_nothing_left(g)
    end)

    it("has one reader: another GET is refused with 409; a GET with Last-Event-ID takes the stream over", function()
      local g <close> = gateway.start { scripts = scripts, workers = 4 }
      local me, other = follower(g, revision, 1, 9), g:client(revision)
      local own = me:get_stream()
      assert.equal(200, own:head().status)
      for i = 1, 8 do
        touch(other, 1, i):answer()
        assert.equal("0-" .. i, select(2, note(own)))
        assert.equal(409, me:get_stream():head().status)
        local old = own
        own = resume.after(me, "0-" .. i)
        assert.equal(200, own:head().status)
        old.connection:wait_end()
      end
      touch(other, 1, 9):answer()
      assert.equal("9", (note(own)))
      assert.same({}, other:result "ping")
      leave(me, other)
      assert.has_nothing_left(g)
    end)
  end)
end

describe("a session's own stream that several workers send to", function()
  it("delivers each message once, in the order of the ids, to a client that reconnects again and again", function()
    local g <close> = gateway.start { scripts = scripts, workers = 4, config = { sessions = { replay = { events = 2000 } } } }
    local sources, count = 5, 60
    local me, other = follower(g, "2025-11-25", sources, count), g:client "2025-11-25"
    for round = 1, 4 do
      local own, calls, seen, total, drops = me:get_stream(), {}, {}, 0, 0
      assert.equal(200, own:head().status)
      local last = tonumber(own:wait_event(function(event) return event.data == "" end).id:match "^0%-(%d+)$")
      for from = 1, sources do
        calls[from] = touch(other, from, 1, count)
      end
      while total < sources * count do
        for _ = 1, math.min(20 + drops % 7, sources * count - total) do
          local event = own:wait_event(function(event) return event.id ~= nil and event.data ~= "" end)
          local uri = event.json.params.uri
          assert.equal(("0-%d"):format(last + 1), event.id)
          assert.is_nil(seen[uri])
          seen[uri], last, total = true, last + 1, total + 1
        end
        local old = own
        drops = drops + 1
        old[drops % 2 == 0 and "close" or "reset"](old)
        own = resume.after(me, "0-" .. last)
        assert.equal(200, own:head().status)
      end
      for from = 1, sources do
        assert.equal("touched", calls[from]:answer().result.content[1].text)
      end
      own:close()
      g:wait_status(function(status) return status.gauges.streams_open == 0 end)
      assert.equal(round * sources * count, last)
    end
    leave(me, other)
    assert.has_nothing_left(g)
  end)
end)
