-- Results of 8 MiB in all cells of the matrix (spec/helpers/matrix.lua): as one answer, and on an event stream that a note
-- has begun; not a byte differs.
local matrix = require "spec.helpers.matrix"

local SIZE <const> = 8 << 20

-- 8 MiB of text in which no two KiB are equal.
local function text_of(name)
  local parts = {}
  for i = 1, SIZE // 1024 do parts[i] = ("%s %08d "):format(name, i):rep(80):sub(1, 1024) end
  return table.concat(parts)
end

local function prepare(u, form)
  function u.handlers.big(x, reply)
    u.text, u.results = u.text or text_of(form.name), u.results or {}
    if x.token then x:report(1, 2) end
    local kept = u.results[x.revision] or x:complete('{"content":[{"type":"text","text":"' .. u.text .. '"}]}')
    u.results[x.revision] = kept
    reply(kept)
  end
end

local function big(meta)
  return function(cell)
    local answer = cell.ann:call("tools/call", { name = cell:named "big", arguments = { bytes = SIZE }, _meta = meta }, 60)
    assert.is_nil(answer.error)
    local text = answer.result.content[1].text
    assert.equal(SIZE, #text)
    assert.is_true(text == cell.u.text, "other bytes came")
    assert.same(meta and { "notifications/progress" } or {}, cell:methods())
  end
end

describe("large results:", function()
  local m = matrix.group("large", { prepare = prepare })
  lazy_setup(function() m:begin() end)
  lazy_teardown(function() m:finish() end)

  m:feature("a result of 8 MiB", big())
  m:feature("a result of 8 MiB after a note", big { progressToken = "p" })

  m:specs(it)
end)
