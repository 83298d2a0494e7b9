-- A stub collector: takes OTLP by HTTP with JSON, and reads it strictly: a member that the protocol does not have, a
-- number that is no text where it has 64 bits, an id of another length, a repeated attribute or a parent that is
-- missing fails the spec.
--   local c <close> = collector.start()
--   local g <close> = gateway.start { config = { traces = c:config() } }
--   local span = c:wait "tools/call add"       -- the first span with this name: { name, kind, attributes = { key = value }, events, links, … }
--   c.answer = function(request, reply) … end  -- a misbehaviour; `c.answer = nil` ends it
local cjson = require "cjson"
local stub = require "spec.helpers.stub"
local wait = require "spec.helpers.wait"

local collector = {}

local function fail(where, what) error("OTLP: " .. where .. ": " .. what, 0) end

-- Checks that `value` is an object whose members `members` allows: name -> function(value, where), with `required`
-- names.
local function object(value, where, members, required)
  if type(value) ~= "table" then fail(where, "is no object") end
  for name, one in pairs(value) do
    local check = members[name] or fail(where, "has the member " .. tostring(name))
    check(one, where .. "." .. name)
  end
  for _, name in ipairs(required) do
    if value[name] == nil then fail(where, "lacks " .. name) end
  end
  return value
end

local function list(value, where, check)
  if type(value) ~= "table" then fail(where, "is no array") end
  local count = 0
  for _ in pairs(value) do count = count + 1 end
  if count ~= #value or count == 0 then fail(where, "is no array with elements") end
  for i, one in ipairs(value) do check(one, where .. "[" .. i .. "]") end
end

local function text(value, where)
  if type(value) ~= "string" or not utf8.len(value) then fail(where, "is no text") end
end

local function full_text(value, where)
  text(value, where)
  if value == "" then fail(where, "is empty") end
end

local function id_of(length)
  return function(value, where)
    if type(value) ~= "string" or #value ~= length or value:find "[^0-9a-f]" or not value:find "[^0]" then fail(where, "is no id: " .. tostring(value)) end
  end
end

-- A 64-bit number, which JSON has as a text.
local function fixed64(value, where)
  if type(value) ~= "string" or not value:find "^%d+$" or #value > 20 then fail(where, "is no 64-bit number: " .. tostring(value)) end
end

local function int64(value, where)
  if type(value) ~= "string" or not value:find "^%-?%d+$" then fail(where, "is no 64-bit number: " .. tostring(value)) end
end

local function whole(least, most)
  return function(value, where)
    if math.type(value) == nil or value % 1 ~= 0 or value < least or value > most then fail(where, "is no number of that range: " .. tostring(value)) end
  end
end

local function boolean(value, where)
  if type(value) ~= "boolean" then fail(where, "is no boolean") end
end

local function double(value, where)
  if type(value) ~= "number" and value ~= "NaN" and value ~= "Infinity" and value ~= "-Infinity" then fail(where, "is no number") end
end

local kinds = { stringValue = text, boolValue = boolean, intValue = int64, doubleValue = double }

local function any_value(value, where)
  object(value, where, kinds, {})
  local kind = next(value)
  if not kind or next(value, kind) then fail(where, "has not exactly one value") end
end

-- Checks attributes and returns them as a table.
local function attributes(value, where)
  local seen = {}
  list(value, where, function(one, at)
    object(one, at, { key = full_text, value = any_value }, { "key", "value" })
    if seen[one.key] ~= nil then fail(at, "repeats the key " .. one.key) end
    local kind, inner = next(one.value)
    seen[one.key] = kind == "intValue" and math.tointeger(tonumber(inner)) or inner
  end)
  return seen
end

local function status(value, where) object(value, where, { code = whole(1, 2), message = full_text }, { "code" }) end
local function event(value, where) object(value, where, { timeUnixNano = fixed64, name = full_text, attributes = attributes }, { "timeUnixNano", "name" }) end
local function link(value, where)
  object(value, where, { traceId = id_of(32), spanId = id_of(16), traceState = text, attributes = attributes }, { "traceId", "spanId" })
end

local span_members = {
  traceId = id_of(32), spanId = id_of(16), parentSpanId = id_of(16), traceState = full_text, flags = whole(0, 0xffffffff), name = full_text,
  kind = whole(1, 5), startTimeUnixNano = fixed64, endTimeUnixNano = fixed64, attributes = attributes, droppedAttributesCount = whole(1, 0xffffffff),
  events = function(value, where) list(value, where, event) end, links = function(value, where) list(value, where, link) end, status = status,
}
local scope_members = { name = full_text, version = full_text }

-- Reads a request's body. Returns the resource's attributes and the spans.
function collector.read(body)
  local found, resource = {}, nil
  local function scope_spans(value, where)
    object(value, where, {
      scope = function(scope, at) object(scope, at, scope_members, { "name", "version" }) end,
      spans = function(spans, at)
        list(spans, at, function(span, place)
          object(span, place, span_members, { "traceId", "spanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "flags" })
          if tonumber(span.endTimeUnixNano) < tonumber(span.startTimeUnixNano) then fail(place, "ends before it starts") end
          if span.flags & 1 ~= 1 then fail(place, "is not sampled") end
          span.list, span.attributes = span.attributes, span.attributes and attributes(span.attributes, place) or {}
          found[#found + 1] = span
        end)
      end,
    }, { "scope", "spans" })
  end
  local function resource_spans(value, where)
    object(value, where, {
      resource = function(one, at)
        object(one, at, { attributes = attributes }, { "attributes" })
        resource = attributes(one.attributes, at)
      end,
      scopeSpans = function(spans, at) list(spans, at, scope_spans) end,
    }, { "resource", "scopeSpans" })
  end
  object(cjson.decode(body), "body", { resourceSpans = function(value, where) list(value, where, resource_spans) end }, { "resourceSpans" })
  return resource, found
end

local running = {}
running.__index = running

-- The contents of a body that is compressed as by gzip; nil if it is not whole.
local function unpacked(body)
  local path = os.tmpname()
  local file <close> = assert(io.open(path, "wb"))
  file:write(body)
  file:close()
  local pipe = assert(io.popen("gzip -dc " .. path .. " 2>&1", "r"))
  local plain = pipe:read "a"
  local is_whole = pipe:close()
  os.remove(path)
  return is_whole and plain or nil
end

local function take(self, request, reply)
  request.sent_bytes = #request.body
  if request.headers["content-encoding"] == "gzip" then request.body = unpacked(request.body) or "" end
  self.requests[#self.requests + 1] = request
  if self.answer then return self.answer(request, reply) end
  local ok, resource, spans = pcall(collector.read, request.body)
  if not ok then
    self.wrong = self.wrong or resource
    return reply:send(400, {}, "")
  end
  if request.method ~= "POST" or request.path ~= "/v1/traces" or request.headers["content-type"] ~= "application/json" then
    self.wrong = self.wrong or request.head
  end
  self.resource = resource
  for _, span in ipairs(spans) do
    local is_new = not self.by_id[span.spanId]
    if not is_new and not self.may_repeat then self.wrong = self.wrong or "two spans with the id " .. span.spanId end
    if is_new then self.spans[#self.spans + 1] = span end
    self.by_id[span.spanId] = span
  end
  self.bodies[#self.bodies + 1] = request.body
  reply:json {}
end

--- Starts a collector on `port`, or a free one.
function collector.start(port)
  local self = setmetatable({ spans = {}, by_id = {}, requests = {}, bodies = {} }, running)
  self.stub = stub.start(function(request, reply) take(self, request, reply) end, nil, port)
  self.port = self.stub.port
  return self
end

--- The section `traces` of a configuration, with other values where `more` has them.
function running:config(more)
  local config = { otlp = "http://127.0.0.1:" .. self.port }
  for name, value in pairs(more or {}) do config[name] = value end
  return config
end

--- Fails if the collector has received anything that the protocol does not allow.
function running:check()
  if self.wrong then error(self.wrong, 2) end
end

--- All spans with a name.
function running:named(name)
  local found = {}
  for _, span in ipairs(self.spans) do
    if span.name == name then found[#found + 1] = span end
  end
  return found
end

--- Waits for the `n`th span with a name.
function running:wait(name, n)
  local function names()
    local all = {}
    for _, span in ipairs(self.spans) do all[#all + 1] = span.name end
    return ("span %d '%s'; there are: %s%s"):format(n or 1, name, table.concat(all, ", "), self.wrong and "; " .. self.wrong or "")
  end
  local found = wait.for_fact(names, 20, function() return self:named(name)[n or 1] end)
  self:check()
  return found
end

--- The spans below `span`, by name; of several with the same name the last.
function running:below(span)
  local found = {}
  for _, one in ipairs(self.spans) do
    if one.parentSpanId == span.spanId and one.traceId == span.traceId then found[one.name] = one end
  end
  return found
end

function running:__close()
  self.stub:__close()
  self:check()
end

return collector
