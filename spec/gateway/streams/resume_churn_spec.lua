-- A client that loses its stream again and again, and resumes it each time: no event is lost, none comes twice (row
-- B-44).
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local resume = require "spec.helpers.resume"

local STEPS, RUNS = 300, 24
local ways = { "close", "reset", "fin" }

-- Reads `most` further events of a stream and appends their words to `words`. Returns the last id, and true if the last
-- event was the answer.
local function read(stream, most, words, last)
  for _ = 1, most do
    local event = stream:wait_event(function(event) return event.id ~= nil end)
    last = event.id
    if event.data ~= "" then
      words[#words + 1] = resume.word(event)
    end
    if event.json and event.json.result then
      return last, true
    end
  end
  return last, false
end

local expected = {}
for i = 1, STEPS do
  expected[i] = i
end
expected[STEPS + 1] = "counted to " .. STEPS

describe("a client that drops the stream after every 37 events or so", function()
  for _, revision in ipairs { "2025-06-18", "2025-11-25" } do
    it(("gets each event once, in order, and one answer, %d times at %s"):format(RUNS // 2, revision), function()
      local g <close> = gateway.start { scripts = resume.scripts, workers = 4 }
      local me = g:client(revision)
      for run = 1, RUNS // 2 do
        local words, drops = {}, 0
        local stream = resume.steps(me, STEPS, 1)
        local last, is_over = read(stream, 30 + run % 15, words)
        while not is_over do
          local way = ways[drops % #ways + 1]
          stream[way](stream)
          drops = drops + 1
          local old = stream
          stream = resume.after(me, last)
          last, is_over = read(stream, 30 + (run + drops) % 15, words, last)
          old:close()
        end
        stream.connection:wait_end()
        assert.same({}, resume.words(resume.all(resume.after(me, last))))
        stream:close()
        assert.same(expected, words)
        assert.is_true(drops >= 5)
      end
      assert.same({ gone = 0, replay = 0, slow = 0 }, (function()
        local dropped = g:status().counters.dropped
        return { gone = dropped.gone, replay = dropped.replay, slow = dropped.slow }
      end)())
      me:delete()
      me:close()
      assert.has_nothing_left(g)
    end)
  end
end)

describe("clients that reconnect while their previous connection is open", function()
  it("disturb no other client, 200 times", function()
    local g <close> = gateway.start { scripts = resume.scripts, workers = 4 }
    local me = g:client "2025-11-25"
    for round = 1, 8 do
      local stream = resume.steps(me, 60, 1)
      local id = stream:wait_event(resume.step(1 + round % 5)).id
      local backs = {}
      for i = 1, 25 do
        backs[i] = resume.after(me, id)
        for _ = 1, i % 3 do
          uv.run "nowait"
        end
        if i % 5 == 0 then
          backs[i][ways[1 + i % 3]](backs[i])
        end
      end
      local words = {}
      repeat -- a request that was sent earlier may be served later, and takes over the stream
        for _, event in ipairs(resume.all(resume.after(me, id))) do
          id, words[#words + 1] = event.id, resume.word(event)
        end
      until words[#words] == "counted to 60"
      assert.equal(60 - round % 5, #words)
      for _, back in ipairs(backs) do
        back:close()
      end
      stream:close()
    end
    me:delete()
    me:close()
    assert.has_nothing_left(g)
  end)
end)
