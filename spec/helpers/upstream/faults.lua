-- Misbehaviour of a stub upstream: functions that make a rule for `upstream:when(what, fault, count)`. Those that run
-- the call count it.
--   u:when("tools/call echo", faults.html(), 1)
local raw = require "spec.helpers.upstream.raw"
local uv = require "luv"

local faults = {}

local JSON <const> = { ["content-type"] = "application/json" }

-- Runs the call and gives its answer, as the bytes of a message, to `f`.
local function ran(f)
  return function(x)
    x:run(function(result, fault)
      f(x, result and ('{"jsonrpc":"2.0","id":%s,"result":%s}'):format(x.id, result) or x.error_text(x.id, fault[1], fault[2], fault[3]), result)
    end)
  end
end

local function later(ms, f)
  local timer = uv.new_timer()
  timer:start(ms, 0, function()
    timer:close()
    f()
  end)
end

-- -- any transport --------------------------------------------------------------------------------------------------------------

--- Runs the call and answers after a time.
function faults.late(ms)
  return ran(function(x, text) later(ms, function() x:done(text) end) end)
end

--- Runs nothing and answers nothing.
function faults.hangs() return function() end end

--- Runs the call and answers nothing.
function faults.silent() return ran(function() end) end

--- Keeps exchanges until there are `count`, then answers all, the last first.
function faults.out_of_order(count)
  local kept = {}
  return ran(function(x, text)
    table.insert(kept, function() x:done(text) end)
    if #kept >= count then
      for i = #kept, 1, -1 do kept[i]() end
      kept = {}
    end
  end)
end

--- Answers twice; the second answer has another text.
function faults.twice()
  return ran(function(x, text)
    local second = ('{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"second"}]}}'):format(x.id)
    if x.http then return x:send_events(x:event(text) .. x:event(second)):end_events() end
    x:done(text)
    x:send(second, true)
  end)
end

--- Answers with these ids first, which are no ids of requests; then correctly, unless `only`.
function faults.foreign(ids, only)
  return ran(function(x, text)
    for _, id in ipairs(ids) do
      x:emit(('{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"foreign"}]}}'):format(id))
    end
    if not only then x:done(text) end
  end)
end

--- Runs the call and answers with these bytes, in which %s is the id.
function faults.answers(bytes)
  return ran(function(x) x:done((bytes:gsub("%%s", (x.id:gsub("%%", "%%%%"))))) end)
end

--- Runs the call and answers with this result, given as bytes.
function faults.result(bytes)
  return ran(function(x) x:result(bytes) end)
end

--- Answers with an error without a run.
function faults.error(code, message, data)
  return function(x) x:error(code, message, data) end
end

--- Runs the call and answers `bytes` bytes of text.
function faults.oversized(bytes)
  return ran(function(x) x:result(x:complete(('{"content":[{"type":"text","text":"%s"}]}'):format(("x"):rep(bytes)))) end)
end

--- Runs the call, answers nothing, and closes the connection, the stream or the process.
function faults.dies()
  return ran(function(x) x:drop() end)
end

-- -- lists ------------------------------------------------------------------------------------------------------------------------

local MEMBERS <const> = {
  ["tools/list"] = "tools", ["prompts/list"] = "prompts", ["resources/list"] = "resources", ["resources/templates/list"] = "resourceTemplates",
}

--- Answers a list with these bytes in the place of its array.
function faults.list(bytes)
  return function(x) x:result(x:complete(('{"%s":%s}'):format(MEMBERS[x.method], bytes), true)) end
end

--- Gives the same cursor again and again, with one entry a page.
function faults.cyclic(bytes)
  return function(x) x:result(x:complete(('{"%s":[%s],"nextCursor":"again"}'):format(MEMBERS[x.method], bytes), true)) end
end

--- A list of `count` tools in pages of `page`, made as they are asked for.
function faults.endless(count, page)
  return function(x)
    local from = tonumber(x.params.cursor or 0)
    local parts = {}
    for i = from + 1, math.min(from + page, count) do parts[#parts + 1] = ('{"name":"t%d","inputSchema":{"type":"object"}}'):format(i) end
    local more = from + page < count and (',"nextCursor":"%d"'):format(from + page) or ""
    x:result(x:complete(('{"tools":[%s]%s}'):format(table.concat(parts, ","), more), true))
  end
end

-- -- HTTP -------------------------------------------------------------------------------------------------------------------------

--- Answers with a status and a body, without a run.
function faults.status(status, headers, body)
  return function(x) x:http(status, headers or {}, body or "") end
end

--- Runs the call and answers with a status and a body that do not fit.
function faults.answers_http(status, headers, body)
  return ran(function(x) x:http(status, headers or {}, body or "") end)
end

--- Runs the call and answers a login page.
function faults.html() return faults.answers_http(200, { ["content-type"] = "text/html" }, "<html><body>Please log in</body></html>") end

--- Runs the call and answers nothing with this status.
function faults.empty(status) return faults.answers_http(status or 200, JSON, "") end

--- Refuses without a run, and says when to come again.
function faults.busy(status, seconds)
  return function(x) x:http(status, { ["retry-after"] = seconds, ["content-type"] = "text/plain" }, "busy") end
end

--- Refuses the session of the request without a run, and forgets it: see `lose_sessions`.
function faults.lost(how)
  local answers = {
    ["404"] = { 404, -32001, "Session not found" }, ["400"] = { 400, -32000, "Bad Request: No valid session ID provided" },
    ["-32600"] = { 200, -32600, "Session not found" }, ["not initialized"] = { 400, -32000, "Bad Request: Server not initialized" },
  }
  return function(x)
    local self = x.server
    if self.sessions and x.session.id then self.sessions[x.session.id] = nil end
    x.session.revision = nil
    if how == "404 empty" then return x:http(404, {}, "") end
    local answer = answers[how or "404"]
    x:http(answer[1], JSON, x.error_text(nil, answer[2], answer[3]))
  end
end

--- Runs the call and closes the connection after a part of the answer. `how`: "fin" or "rst".
function faults.cut(bytes, how)
  return ran(function(x, text)
    x.reply:head(200, { ["content-type"] = "application/json", ["content-length"] = #text }):raw(text:sub(1, bytes or #text // 2))
    x[how == "rst" and "reset" or "drop"](x)
  end)
end

--- Runs the call and ends its event stream without an answer.
function faults.ends_stream()
  return ran(function(x) x:send_events(": going\n\n"):end_events() end)
end

--- Runs the call and answers a body that is compressed, or only says so. `encoding`: the header; `body`: the bytes (by
--- default gzip's of the answer).
function faults.compressed(encoding, body)
  return ran(function(x, text)
    x:http(200, { ["content-type"] = "application/json", ["content-encoding"] = encoding or "gzip" }, body or faults.gzip(text))
  end)
end

--- Runs the call and answers with an event stream whose bytes `spell(text)` makes, in pieces of `size` bytes.
function faults.stream(spell, size)
  return ran(function(x, text)
    local bytes = spell(text)
    local pieces = {}
    for from = 1, #bytes, size or #bytes do
      local piece = bytes:sub(from, from + (size or #bytes) - 1)
      pieces[#pieces + 1] = ("%x\r\n%s\r\n"):format(#piece, piece)
    end
    x:send_events ""
    x.reply:pieces(pieces, function() x:end_events() end)
  end)
end

--- Bytes as the program gzip compresses them.
function faults.gzip(bytes)
  local path = os.tmpname()
  local file = assert(io.open(path, "wb"))
  file:write(bytes)
  file:close()
  local pipe <close> = assert(io.popen("gzip -c " .. path, "r"))
  local packed = pipe:read "a"
  os.remove(path)
  return packed
end

--- `megabytes` of zeros, compressed to about a thousandth, as many members of a gzip file.
function faults.bomb(megabytes)
  local member = faults.gzip(("\0"):rep(1 << 20))
  return member:rep(megabytes)
end

-- -- stdio ------------------------------------------------------------------------------------------------------------------------

--- Writes bytes to stdout before the answer.
function faults.noise(bytes)
  return ran(function(x, text)
    x.child:write(bytes)
    x:done(text)
  end)
end

--- Writes the answer in pieces of `size` bytes, one per turn of the loop.
function faults.pieces(size)
  return ran(function(x, text)
    local line, at = text .. "\n", 1
    x:forget()
    local function on()
      if at > #line then return end
      x.child:write(line:sub(at, at + size - 1))
      at = at + size
      later(1, on)
    end
    on()
  end)
end

--- Writes "TEXT" that many times to stderr, then answers.
function faults.flood(count, text)
  return ran(function(x, answer)
    x.child:order("flood", ("%d %s"):format(count, text))
    x:done(answer)
  end)
end

--- Runs the call; the process ends with this code before it answers.
function faults.exits(code)
  return ran(function(x)
    x.child:order("exit", code or 1)
    x:forget()
  end)
end

faults.quote = raw.quote

return faults
