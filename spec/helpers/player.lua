-- Plays one transcript in one revision over one transport: sends the client's messages, compares the answers word for
-- word with the transcript's, and checks them against the official schema of the revision.
local cjson = require "cjson"
local transcript = require "spec.helpers.transcript"
local transports = require "spec.helpers.transports"
local wait = require "spec.helpers.wait"
local library = require "spec.helpers.library"()

local json = library.json
local PATIENCE = 20 -- seconds; a fact ends the wait at once, so this is for a machine that stands still
local INFO = { name = "spec", version = "1" }
local META = "io.modelcontextprotocol/"

local player = {}
player.__index = player

-- -- $names ---------------------------------------------------------------------------------------------------------------

local function kind_of(value)
  if type(value) ~= "table" then return type(value) end
  return debug.getmetatable(value) == json.array_mt and "array" or "object"
end

local function same(a, b) return a == b or type(a) == "table" and json.encode(a) == json.encode(b) end

local function text_fits(pattern, text, known)
  if type(text) ~= "string" then return false end
  local built, names, at = "^", {}, 1
  local function add(part) built = built .. part:gsub("%W", "%%%0"):gsub("%%%.%%%.%%%.", ".*") end
  for before, name, after in pattern:gmatch "()%$([%l$]%l*)()" do
    add(pattern:sub(at, before - 1))
    if name:sub(1, 1) == "$" then
      add("$" .. name:sub(2))
    elseif known[name] ~= nil then
      add(tostring(known[name]))
    else
      names[#names + 1] = name
      built = built .. "([^%s\"]+)"
    end
    at = after
  end
  add(pattern:sub(at))
  local found = table.pack(text:match(built .. "$"))
  for i, name in ipairs(names) do known[name] = found[i] end
  return found[1] ~= nil
end

-- True if a value equals the written one; otherwise false and the path of the first difference.
local function fits(wanted, found, known, path)
  local name = type(wanted) == "string" and wanted:match "^%$(%l+)$"
  if name then
    if found == nil then return false, path end
    if known[name] == nil then known[name] = found end
    return same(known[name], found), path
  elseif type(wanted) == "string" then
    return text_fits(wanted, found, known), path
  elseif type(wanted) ~= "table" then
    return wanted == found, path
  end
  local kind = kind_of(wanted)
  if kind ~= kind_of(found) then
    return (kind == "array" and #wanted == 0 and found == json.empty_array), path
  elseif kind == "array" then
    local open = wanted[#wanted] == "..."
    local count = open and #wanted - 1 or #wanted
    if #found < count or (not open and #found > count) then return false, path .. "/#" end
    for i = 1, count do
      local ok, where = fits(wanted[i], found[i], known, path .. "/" .. i - 1)
      if not ok then return false, where end
    end
    return true
  end
  for key, value in pairs(wanted) do
    if key ~= "..." then
      local ok, where = fits(value, found[key], known, path .. "/" .. key)
      if not ok then return false, where end
    end
  end
  for key in pairs(found) do
    if wanted[key] == nil and wanted["..."] == nil then return false, path .. "/" .. key end
  end
  return true
end

-- Replaces the known $names in a value.
local function fill(value, known, where)
  if type(value) == "string" then
    local name = value:match "^%$(%l+)$"
    if name then return known[name] == nil and error(where .. ": nothing is known as $" .. name, 0) or known[name] end
    return (value:gsub("%$([%l$]%l*)", function(inner)
      if inner:sub(1, 1) == "$" then return inner end
      return tostring(known[inner])
    end))
  elseif type(value) ~= "table" then
    return value
  end
  local made = {}
  for key, inner in pairs(value) do made[key] = fill(inner, known, where) end
  return setmetatable(made, debug.getmetatable(value))
end

-- -- messages of the client -----------------------------------------------------------------------------------------------

-- The _meta that every request of 2026-07-28 has.
local function with_meta(self, message)
  if self.revision ~= "2026-07-28" or not message.method or message.id == nil then return message end
  local params, meta = { }, {
    [META .. "protocolVersion"] = self.revision, [META .. "clientInfo"] = INFO,
    [META .. "clientCapabilities"] = self.capabilities,
  }
  for name, value in pairs(message.params or {}) do params[name] = value end
  for name, value in pairs(params._meta or {}) do
    meta[name] = value ~= json.null and value or nil
  end
  params._meta = meta
  return { id = message.id, method = message.method, params = params }
end

local function note_asked(self, message)
  if type(message) ~= "table" then return end
  for _, one in ipairs(kind_of(message) == "array" and message or { message }) do
    if type(one) == "table" and one.method and one.id ~= nil then self.asked[json.encode(one.id)] = one.method end
  end
end

local function wants_answer(message)
  if type(message) ~= "table" then return true end
  for _, one in ipairs(kind_of(message) == "array" and message or { message }) do
    if type(one) ~= "table" or one.method and one.id ~= nil or not (one.method or one.result or one.error) then return true end
  end
  return false
end

local function check_head(self, exchange, step)
  for i, wanted in ipairs(step.head) do
    local found = exchange:status()
    if i > 1 or not wanted:find "^%d%d%d$" then
      local name = assert(wanted:match "^([^:]+): ", wanted)
      found = name .. ": " .. (exchange:head().headers[name:lower()] or "(absent)")
    end
    if not text_fits(wanted, found, self.known) then
      error(("%s: the head says\n  %s\nand not\n  %s"):format(step.where, found, wanted), 0)
    end
  end
end

function player:say(step)
  local message, text
  if step.raw then
    text = fill(step.raw, self.known, step.where)
    message = json.decode(text)
  else
    message = with_meta(self, fill(step.message, self.known, step.where))
    message.jsonrpc = "2.0"
    text = json.encode(message)
  end
  note_asked(self, message)
  local single = type(message) == "table" and kind_of(message) == "object" and message or {}
  local params = type(single.params) == "table" and single.params or {}
  local headers = step.headers and fill(step.headers, self.known, step.where)
  local exchange = self.transport:say(text, {
    id = single.method and single.id, method = single.method, name = params.name or params.uri or params.taskId, headers = headers,
  })
  if self.transport.kind == "stdio" then return end
  self.known.session = self.known.session or self.transport.session
  self.exchange = exchange
  if step.head then
    check_head(self, exchange, step)
  elseif not wants_answer(message) or self.transport.kind == "sse" then
    local status = exchange:status()
    assert(status == "202", step.where .. ": the POST was answered " .. status .. ": " .. tostring((exchange:pump().queue[1] or {}).text))
  end
  exchange.headed = step.head ~= nil
end

function player:request(step)
  local exchange = self.transport:request { method = step.method, path = fill(step.path, self.known, step.where),
    headers = fill(step.headers, self.known, step.where) }
  if step.head then check_head(self, exchange, step) end
  exchange.headed = true
  if step.method == "DELETE" and exchange:status() == "204" then self.transport.session = nil end
end

function player:listen() self.transport:listen() end

function player:drop(step) self.transport:drop(math.tointeger(step.what) or cjson.decode(step.what)) end

function player:resume(step) self.transport:resume(math.tointeger(step.what) or cjson.decode(step.what)) end

function player:close()
  self.transport:close()
  self.closed = true
end

-- -- messages of the gateway ----------------------------------------------------------------------------------------------

-- Notifications that belong to no call, and arrive at any time.
local function is_news(message)
  local method = message.method or ""
  return method:find "/list_changed$" or method:find "^notifications/tasks" or method == "notifications/resources/updated"
end

-- Sorts the messages that came on a stream: answers of calls, and news where all share one stream. The messages of a
-- batch are taken one by one.
local function sort(self, stream)
  stream.calls, stream.news = stream.calls or {}, stream.news or {}
  while stream.queue[1] do
    local came = table.remove(stream.queue, 1)
    local value = assert(json.decode(came.text), "no JSON came: " .. came.text)
    assert(kind_of(value) == "object" or self.revision == "2025-03-26", "a batch came: " .. came.text)
    for _, message in ipairs(kind_of(value) == "array" and value or { value }) do
      local aside = self.transport.kind ~= "http" and is_news(message)
      table.insert(aside and stream.news or stream.calls, { message = message, event = came.event })
    end
  end
  return stream
end

-- The lists of streams whose first message may be the one that a step expects.
local function lists_for(self, stream, step)
  sort(self, stream)
  if self.transport.kind == "http" then
    return (stream.apart or false) == (step.apart or false) and { stream.calls } or {}
  end
  return step.apart and { stream.news } or { stream.calls, stream.news }
end

local function check_schema(self, message, where)
  if not self.official then return end
  local method = message.id ~= nil and not message.method and self.asked[json.encode(message.id)] or nil
  local complaint = self.official.complaint(self.revision, message, method)
  if complaint then
    error(("%s: what came is not as the schema of %s says: %s\n  %s"):format(where, self.revision, complaint, json.encode(message)), 0)
  end
end

-- Transcripts leave out the members that all results of 2026-07-28 have.
local function completed(self, message)
  local result = message.result
  if self.revision == "2026-07-28" and result then
    local whole = {}
    for name, value in pairs(result) do whole[name] = value end
    whole.resultType = whole.resultType or "complete"
    whole._meta = whole._meta or { [META .. "serverInfo"] = { name = "moonpool", version = "$version" } }
    result = whole
  end
  return { jsonrpc = "2.0", id = message.id, method = message.method, params = message.params, result = result, error = message.error }
end

-- Checks that an answer comes on the stream of its request, with the HTTP status for its kind.
local function check_place(self, stream, message, where)
  if self.transport.kind ~= "http" or stream.apart or message.method then return end
  if stream.id ~= nil and message.id ~= nil then
    assert(same(stream.id, message.id), where .. ": it came on the stream of another request")
  end
  if not stream.headed then
    local wanted, found = self.transport:expected_status(message), stream:status()
    assert(wanted == found, ("%s: the status is %s, not %s"):format(where, found, wanted))
  end
end

function player:hear(step)
  local wanted, mismatches = completed(self, step.message), {}
  local function find()
    local hope = false
    mismatches = {}
    for _, stream in ipairs(self.transport:streams()) do
      for _, list in ipairs(lists_for(self, stream, step)) do
        local first = list[1]
        if first then
          local known = {}
          for name, value in pairs(self.known) do known[name] = value end
          local ok, path = fits(wanted, first.message, known, "")
          if ok then
            self.known = known
            stream.last = table.remove(list, 1).event or stream.last
            return stream, first.message
          end
          mismatches[#mismatches + 1] = ("\n  %s\nwhich differs at %s"):format(json.encode(first.message), path)
        else
          hope = hope or not stream.over
        end
      end
    end
    if not hope then error("nothing more can come", 0) end
  end
  local ok, stream, message = pcall(wait.for_fact, "it", PATIENCE, find)
  if not ok then
    error(("%s: what is written\n  %s\nhas not come (%s); what came is%s"):format(step.where, json.encode(wanted), stream,
      mismatches[1] and table.concat(mismatches) or " nothing"), 0)
  end
  check_place(self, stream, message, step.where)
  check_schema(self, message, step.where)
end

-- -- a play ---------------------------------------------------------------------------------------------------------------

local function shake_hands(self)
  local where = "the handshake"
  local told = { protocolVersion = self.revision, capabilities = self.capabilities, clientInfo = INFO }
  self:say { message = { id = "hello", method = "initialize", params = told }, where = where }
  self:hear { message = { id = "hello", result = { protocolVersion = self.revision, ["..."] = true } }, where = where }
  self:say { message = { method = "notifications/initialized" }, where = where }
end

-- Checks that no message is left on any stream; over one stream, a last request proves it.
local function hear_out(self)
  if self.closed then return end
  if self.transport.kind ~= "http" then
    local method = self.revision == "2026-07-28" and "server/discover" or "ping"
    self:say { message = { id = "last", method = method }, where = "the end" }
    self:hear { message = { id = "last", result = { ["..."] = true } }, where = "the end" }
  end
  wait.for_fact("all calls to be answered", PATIENCE, function()
    for _, stream in ipairs(self.transport:streams()) do
      local left = sort(self, stream).calls[1] or stream.news[1]
      assert(not left, "nobody wrote that this comes: " .. (left and json.encode(left.message) or ""))
      if not (stream.over or stream.endless) then return false end
    end
    return true
  end)
end

-- `g` is the gateway; `official` is nil if messages are not checked against the schemas.
function player.play(it, revision, transport, g, version, official)
  local self = setmetatable({
    revision = revision, asked = {}, official = official, capabilities = it.capabilities or {},
    known = { revision = revision, version = version }, transport = transports.open(g, revision, transport),
  }, player)
  local ok, problem = pcall(function()
    if revision ~= "2026-07-28" and it.handshake then shake_hands(self) end
    for _, step in ipairs(transcript.steps(it, revision, transport)) do self[step.does](self, step) end
    hear_out(self)
  end)
  local left, complaint = pcall(self.transport.leave, self.transport)
  if not (ok and left) then error(ok and complaint or problem, 0) end
end

return player
