-- An MCP server of one revision, or of several, behind any transport: what a stub upstream answers, what it received,
-- and how it misbehaves.
-- A transport makes an exchange for each request and gives it to `server:take`. spec/helpers/upstream.lua describes
-- what specs use.
local cjson = require "cjson.safe"
local uv = require "luv"
local catalogue = require "spec.helpers.upstream.catalogue"
local raw = require "spec.helpers.upstream.raw"
local tasks = require "spec.helpers.upstream.tasks"
local wait = require "spec.helpers.wait"

local server = {}
server.__index = server

local MODERN <const> = "2026-07-28"
local META <const> = "io.modelcontextprotocol/"
local PATIENCE <const> = 20 -- seconds; a fact ends the wait at once

-- -- what was received ----------------------------------------------------------------------------------------------------

--- Adds an entry to the list of what was received. `entry.kind`: request, notification, response, http (a GET, a
--- DELETE, or a POST without a message), start and end (of a stream or a process).
function server:note(entry)
  entry.n = #self.received + 1
  entry.at = uv.hrtime() / 1e9
  self.received[entry.n] = entry
  return entry
end

--- Records a mistake of the client that called. A spec that closes a stub with mistakes fails.
function server:blame(text, ...) table.insert(self.mistakes, select("#", ...) > 0 and text:format(...) or text) end

--- The entries with these members, in order: server:all { method = "tools/call" }.
function server:all(members)
  uv.run "nowait"
  local list = {}
  for _, entry in ipairs(self.received) do
    local fits = true
    for name, value in pairs(members) do fits = fits and entry[name] == value end
    if fits then list[#list + 1] = entry end
  end
  return list
end

--- The number of times that a tool ran; without a name, that any tool ran.
function server:ran(tool)
  uv.run "nowait"
  return tool and (self.runs[tool] or 0) or self.runs_of_all
end

--- Waits until `count` (1) entries have these members; returns the last of these.
function server:wait(members, count, seconds)
  local function named()
    local came = {}
    for i, entry in ipairs(self.received) do came[i] = ("%s %s %s"):format(entry.kind, entry.method or "", entry.tool or "") end
    return ("%d entries with %s; received: %s"):format(count or 1, cjson.encode(members), table.concat(came, ", "))
  end
  return wait.for_fact(named, seconds or PATIENCE, function() return self:all(members)[count or 1] end)
end

--- Waits until `count` (1) calls of `hold` wait, with this key if one is given; returns these exchanges.
function server:wait_held(count, key)
  return wait.for_fact(("%d held calls"):format(count or 1), PATIENCE, function()
    local list = {}
    for _, x in ipairs(self.held) do
      if not x.over and (key == nil or x.arguments.key == key) then list[#list + 1] = x end
    end
    return #list >= (count or 1) and list
  end)
end

--- Answers the calls of `hold` that wait, with this key if one is given.
function server:release(key)
  local left = {}
  for _, x in ipairs(self.held) do
    if key == nil or x.arguments.key == key then
      if not x.over then x:result(x:complete('{"content":[{"type":"text","text":"released"}]}')) end
    else
      left[#left + 1] = x
    end
  end
  self.held = left
end

-- -- exchanges: one request and what is sent for it ---------------------------------------------------------------------------

local exchange = {}
server.exchange = exchange

--- Sends a message before the answer, on the stream of the request.
function exchange:emit(text)
  if not self.over then self:send(text, false) end
  return self
end

--- Sends the answer, as the bytes of a whole message.
function exchange:done(text, status)
  if self.over then return self end
  self.over = true
  self.server.running[self] = nil
  self:send(text, true, status)
  return self
end

--- Ends the exchange without an answer; the connection stays as it is.
function exchange:forget()
  self.over = true
  self.server.running[self] = nil
  return self
end

--- Answers with a result, given as bytes.
function exchange:result(bytes) return self:done('{"jsonrpc":"2.0","id":' .. self.id .. ',"result":' .. bytes .. "}") end

local STATUS <const> = { [-32601] = 404, [-32700] = 400, [-32600] = 400, [-32602] = 400, [-32020] = 400, [-32021] = 400, [-32022] = 400 }

function exchange.error_text(id, code, message, data)
  return ('{"jsonrpc":"2.0",%s"error":{"code":%d,"message":%s%s}}'):format(id and '"id":' .. id .. "," or "", code, raw.quote(message),
    data and ',"data":' .. data or "")
end

--- Answers with an error; `data` is JSON text.
function exchange:error(code, message, data)
  return self:done(exchange.error_text(self.id, code, message, data), self.modern and STATUS[code] or 200)
end

--- Makes a result, given as bytes, complete for the revision: 2026-07-28 wants more members. `lists`: the result may be
--- cached.
function exchange:complete(bytes, lists)
  if not self.modern then return bytes end
  local more = '"resultType":"complete"'
  if lists then more = more .. (',"ttlMs":%d,"cacheScope":"private"'):format(self.server.ttl_ms) end
  if not bytes:find('"_meta"', 1, true) then more = more .. ',"_meta":{"' .. META .. 'serverInfo":{"name":"stub","version":"1"}}' end
  return "{" .. more .. (bytes:find "^{%s*}" and "" or ",") .. bytes:sub(2)
end

--- Reports progress, if the request has a token.
function exchange:report(progress, total, message)
  if not self.token then return self end
  return self:emit(('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%s%s%s}}'):format(self.token, progress,
    total and ',"total":' .. total or "", message and self.revision >= "2025-03-26" and ',"message":' .. raw.quote(message) or ""))
end

--- Asks the client something on the stream of the request; `params` is JSON text. `done` gets the client's answer, a
--- message. Returns the question's id.
function exchange:ask(method, params, done)
  local self_ = self.server
  self_.asked = self_.asked + 1
  local id = '"q' .. self_.asked .. '"'
  self.session.questions = self.session.questions or {}
  self.session.questions[id] = done
  self:emit(('{"jsonrpc":"2.0","id":%s,"method":"%s","params":%s}'):format(id, method, params))
  return id
end

-- -- methods ------------------------------------------------------------------------------------------------------------------

local methods, tools = {}, {}

local function text_result(x, text, more) return x:complete(('{"content":[{"type":"text","text":%s}]%s}'):format(raw.quote(text), more or "")) end

function methods.initialize(x, reply)
  local self = x.server
  local asked = x.params.protocolVersion
  local revision
  for _, known in ipairs(self.legacy) do
    if known == asked then revision = known end
  end
  revision = revision or self.legacy[1]
  if not revision then
    return reply(nil, { -32601, "Method not found", ('{"supported":["%s"]}'):format(MODERN) })
  end
  x.session.revision, x.session.client, x.session.capabilities = revision, x.params.clientInfo, x.params.capabilities
  local more = self.instructions and ',"instructions":' .. raw.quote(self.instructions) or ""
  reply(('{"protocolVersion":"%s","capabilities":%s,"serverInfo":{"name":"stub","version":"1"}%s}'):format(revision, self:capabilities(revision), more))
end

methods["server/discover"] = function(x, reply)
  local self = x.server
  if not self.is_modern then return reply(nil, { -32601, "Method not found" }) end
  local more = self.instructions and ',"instructions":' .. raw.quote(self.instructions) or ""
  reply(x:complete(('{"supportedVersions":["%s"],"capabilities":%s%s}'):format(MODERN, self:capabilities(MODERN), more), true))
end

methods.ping = function(_, reply) reply "{}" end
methods["logging/setLevel"] = function(x, reply)
  x.session.level = x.params.level
  reply "{}"
end
methods["resources/subscribe"] = function(x, reply)
  if x.server.unfollowed[x.params.uri] then return reply(nil, { -32002, "Resource not found" }) end
  x.session.subscribed = x.session.subscribed or {}
  x.session.subscribed[x.params.uri] = true
  reply "{}"
end
methods["resources/unsubscribe"] = function(x, reply)
  if x.session.subscribed then x.session.subscribed[x.params.uri] = nil end
  reply "{}"
end

-- Answers nothing before its end: `server.listens` has the exchanges.
methods["subscriptions/listen"] = function(x, reply)
  if not x.server.with_listen then return reply(nil, { -32601, "Method not found" }) end
  table.insert(x.server.listens, x)
  x.filter = x.params.notifications
  local honoured = {}
  for name, value in pairs(x.filter) do honoured[name] = value end
  honoured.resourceSubscriptions = honoured.resourceSubscriptions and setmetatable({}, cjson.array_mt)
  for _, uri in ipairs(x.filter.resourceSubscriptions or {}) do
    if not x.server.unfollowed[uri] then table.insert(honoured.resourceSubscriptions, uri) end
  end
  x:emit(('{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":%s,"_meta":{"%ssubscriptionId":%s}}}'):format(
    cjson.encode(honoured), META, x.id))
end

-- A list in pages of `server.page` entries; cursors are opaque to the client.
local function list(kind, member)
  return function(x, reply)
    local self = x.server
    local all = self:offered(kind, x.revision)
    local from = 1
    if x.params.cursor then
      from = tonumber(tostring(x.params.cursor):match "^after:(%d+)$")
      if not from then return reply(nil, { -32602, "Invalid cursor" }) end
      from = from + 1
    end
    local parts, last = {}, math.min(#all, from + self.page - 1)
    for i = from, last do parts[#parts + 1] = all[i].bytes end
    local more = last < #all and ('"nextCursor":"after:%d"'):format(last) or nil
    reply(x:complete(('{"%s":[%s]%s}'):format(member, table.concat(parts, ","), more and "," .. more or ""), true))
  end
end

methods["tools/list"] = list("tools", "tools")
methods["prompts/list"] = list("prompts", "prompts")
methods["resources/list"] = list("resources", "resources")
methods["resources/templates/list"] = list("templates", "resourceTemplates")

methods["tools/call"] = function(x, reply)
  local self = x.server
  local name = x.params.name
  local handler = self.handlers[name] or tools[name]
  if not handler then
    for _, one in ipairs(self:offered("tools", x.revision)) do
      if one.name == name then handler = tools.echo end
    end
  end
  if not handler then return reply(nil, { -32602, "Unknown tool: " .. tostring(name) }) end
  self.runs[name] = (self.runs[name] or 0) + 1
  self.runs_of_all = self.runs_of_all + 1
  if tasks.begin(x, reply, handler) then return end
  handler(x, reply)
end

for name, method in pairs(tasks.methods) do methods[name] = method end

methods["prompts/get"] = function(x, reply)
  local arguments = x.params.arguments or {}
  if x.params.name == "greet" then
    if not arguments.who then return reply(nil, { -32602, "Missing argument: who" }) end
    reply(x:complete(('{"description":"A greeting.","messages":[{"role":"user","content":{"type":"text","text":%s}}]}'):format(
      raw.quote((arguments.style or "Hello") .. ", " .. arguments.who))))
  elseif x.params.name == "plain" then
    reply(x:complete '{"messages":[{"role":"assistant","content":{"type":"text","text":"plain"}}]}')
  else
    reply(nil, { -32602, "Unknown prompt: " .. tostring(x.params.name) })
  end
end

methods["resources/read"] = function(x, reply)
  local uri = x.params.uri
  local quoted = raw.quote(tostring(uri))
  local place = tostring(uri):match("^" .. x.server.scheme .. "://(.+)$")
  local item = place and place:match "^item/(.+)$"
  if place == "text" then
    reply(x:complete(('{"contents":[{"uri":%s,"mimeType":"text/plain","text":"hello"}]}'):format(quoted), true))
  elseif place == "bytes" then
    reply(x:complete(('{"contents":[{"uri":%s,"mimeType":"application/octet-stream","blob":"AAEC/w=="}]}'):format(quoted), true))
  elseif item then
    reply(x:complete(('{"contents":[{"uri":%s,"text":%s}]}'):format(quoted, raw.quote("item " .. item)), true))
  else
    reply(nil, { x.modern and -32602 or -32002, "Resource not found", '{"uri":' .. quoted .. "}" })
  end
end

methods["completion/complete"] = function(x, reply)
  local about = x.params.argument or {}
  local ref = x.params.ref or {}
  local function value(text) return raw.quote(text .. "-" .. tostring(about.value)) end
  local values = { value(tostring(ref.name or ref.uri)), value(tostring(about.name)) }
  local context = ((x.params.context or {}).arguments or {}).who
  if context then values[3] = value("after-" .. context) end
  reply(x:complete(('{"completion":{"values":[%s],"total":%d,"hasMore":false}}'):format(table.concat(values, ","), #values)))
end

-- -- tools ------------------------------------------------------------------------------------------------------------------------

function tools.echo(x, reply)
  local bytes = x.raw_arguments or "{}"
  reply(text_result(x, bytes, x.revision >= "2025-06-18" and bytes:find "^%s*{" and ',"structuredContent":' .. bytes or nil))
end

tools.look, tools.again, tools.tenant = tools.echo, tools.echo, tools.echo

function tools.counter(x, reply)
  x.session.count = (x.session.count or 0) + 1
  reply(text_result(x, tostring(x.session.count)))
end

function tools.hold(x) table.insert(x.server.held, x) end

function tools.progress(x, reply)
  local steps = math.tointeger(x.arguments.steps) or 3
  for i = 1, steps do x:report(i, steps, "step " .. i) end
  reply(text_result(x, steps .. " steps"))
end

-- Asks the client each of `questions`, [method, params], at once, and answers with the answers by the questions' order.
function tools.ask(x, reply)
  local answers, left = {}, 0
  local function finish()
    if left == 0 then reply(text_result(x, "[" .. table.concat(answers, ",") .. "]")) end
  end
  local count = 0
  while raw.at(x.raw_arguments, "questions", count + 1) do count = count + 1 end
  left = count
  for i = 1, count do
    local method = cjson.decode(raw.at(x.raw_arguments, "questions", i, 1))
    x:ask(method, raw.at(x.raw_arguments, "questions", i, 2), function(json, text)
      answers[i] = raw.at(text, json.error and "error" or "result")
      left = left - 1
      finish()
    end)
  end
  finish()
end

function tools.fail(_, reply) reply(nil, { -32123, "The stub fails", '{"why":"a test","number":1.0}' }) end

function tools.complain(x, reply) reply(text_result(x, "the stub complains", ',"isError":true')) end

function tools.big(x, reply) reply(text_result(x, ("x"):rep(x.arguments.bytes // 1 | 0))) end

function tools.sum(x, reply)
  local sum = ("%.14g"):format((x.arguments.a or 0) + (x.arguments.b or 0))
  reply(text_result(x, '{"sum":' .. sum .. "}", x.revision >= "2025-06-18" and ',"structuredContent":{"sum":' .. sum .. "}" or nil))
end

function tools.kinds(x, reply) reply(x:complete('{"content":' .. catalogue.blocks(x.revision, x.server.scheme) .. "}")) end

-- -- taking a message ---------------------------------------------------------------------------------------------------------------

--- Runs the method as a correct server does, and gives the result or { code, message, data } to `reply`.
function exchange:run(reply)
  local method = methods[self.method]
  if not method then return reply(nil, { -32601, "Method not found" }) end
  method(self, reply)
end

--- Runs the method and answers, as a correct server does.
function exchange:serve()
  self:run(function(result, fault)
    if result then return self:result(result) end
    self:error(fault[1], fault[2], fault[3])
  end)
end

-- Takes the first rule for this exchange that has uses left.
local function take_rule(self, x)
  for i, rule in ipairs(self.rules) do
    if (rule.what == "*" or rule.what == x.method or rule.what == (x.tool and "tools/call " .. x.tool)) and rule.left > 0 then
      rule.left = rule.left - 1
      if rule.left == 0 then table.remove(self.rules, i) end
      return rule
    end
  end
end

-- Mistakes of the client's request itself, whatever its transport is.
local function check_request(self, x)
  if not (x.id:find '^"' or x.id:find "^%-?%d+$") then self:blame("the id %s is neither a string nor an integer", x.id) end
  if x.json.jsonrpc ~= "2.0" then self:blame("%s is not JSON-RPC 2.0", x.method) end
  if x.modern then
    local meta = type(x.params._meta) == "table" and x.params._meta or {}
    if type(meta[META .. "clientCapabilities"]) ~= "table" then self:blame("%s has no client capabilities", x.method) end
    if type(meta[META .. "clientInfo"]) ~= "table" then self:blame("%s has no client information", x.method) end
  else
    local session = x.session
    if session.ids[x.id] then self:blame("the id %s was used twice in a session", x.id) end
    -- The request and its cancellation are on connections of their own, of which the server may read the second one
    -- first.
    local mistake = session.too_early[x.id]
    for i = #self.mistakes, 1, -1 do
      if self.mistakes[i] == mistake then
        table.remove(self.mistakes, i)
        self.overtaken = self.overtaken - 1
      end
    end
    local is_early = x.method == "initialize" or x.method == "ping" or x.method == "server/discover"
    if not is_early and not session.initialized then self:blame("%s came before notifications/initialized", x.method) end
  end
end

--- Fills in what an exchange has of its message, and lets the server answer it. `x` has server, session, text and json;
--- of the transport: send, and for HTTP http, drop and reset.
function server:take(x)
  x.server = self
  x.id = raw.at(x.text, "id")
  x.method = x.json.method
  x.params = type(x.json.params) == "table" and x.json.params or {}
  x.meta = type(x.params._meta) == "table" and x.params._meta or {}
  x.token = raw.at(x.text, "params", "_meta", "progressToken")
  x.raw_arguments = raw.at(x.text, "params", "arguments")
  x.arguments = type(x.params.arguments) == "table" and x.params.arguments or {}
  x.tool = x.method == "tools/call" and x.params.name or nil
  x.modern = x.meta[META .. "protocolVersion"] ~= nil and self.is_modern
  x.revision = x.modern and MODERN or x.session.revision or self.legacy[1] or MODERN
  x.entry = self:note {
    kind = "request", method = x.method, id = x.id, tool = x.tool, text = x.text, json = x.json, head = x.head, headers = x.headers, session = x.session,
    connection = x.connection, revision = x.revision, exchange = x,
  }
  if self.strict then check_request(self, x) end
  local ids = x.modern and self.modern_ids or x.session.ids
  ids[x.id] = true -- for cancellations
  self.running[x] = true
  local rule = take_rule(self, x)
  if rule then return rule.fault(x) end
  if not x.modern and x.method ~= "initialize" and x.method ~= "ping" and not x.session.revision then return self:refuse_early(x) end
  x:serve()
end

-- What servers of the older revisions answer to a request that came before `initialize`, and so to server/discover.
local EARLY <const> = {
  ["-32601"] = function(x) x:error(-32601, "Method not found") end,
  ["-32602"] = function(x) x:error(-32602, "Invalid request parameters") end,
  ["-32600"] = function(x) x:error(-32600, "Received request before initialization was complete") end,
  ["-32000"] = function(x) x:error(-32000, "Server not initialized") end,
  ["400"] = function(x)
    if not x.http then return x:error(-32000, "Bad Request: Server not initialized") end
    x:http(400, { ["content-type"] = "application/json" }, exchange.error_text(nil, -32000, "Bad Request: Server not initialized"))
  end,
  ["html"] = function(x)
    if not x.http then return x:error(-32601, "Method not found") end
    x:http(404, { ["content-type"] = "text/html" }, "<html>Not found</html>")
  end,
  ["silent"] = function() end,
}

function server:refuse_early(x) return assert(EARLY[self.early], "no such way to refuse: " .. tostring(self.early))(x) end

--- Takes a notification of the client.
function server:take_notification(session, json, text, more)
  local entry = { kind = "notification", method = json.method, text = text, json = json, session = session }
  for name, value in pairs(more or {}) do entry[name] = value end
  self:note(entry)
  if json.method == "notifications/initialized" then
    session.initialized = true
  elseif json.method == "notifications/cancelled" then
    local id = raw.at(text, "params", "requestId")
    for x in pairs(self.running) do
      if x.session == session and x.id == id then
        x.cancelled = true
        x.entry.cancelled = true
        if not x.ignores_cancel then x:forget() end
        return
      end
    end
    if not (session.ids[id or ""] or self.modern_ids[id or ""]) then
      self:blame("cancelled a request that never came: %s", tostring(id))
      session.too_early[id or ""] = self.mistakes[#self.mistakes]
      self.overtaken = self.overtaken + 1
    end
  end
end

--- Takes an answer of the client to a request of ours.
function server:take_response(session, json, text, more)
  local entry = { kind = "response", text = text, json = json, session = session }
  for name, value in pairs(more or {}) do entry[name] = value end
  self:note(entry)
  local id = raw.at(text, "id")
  local done = id and session.questions and session.questions[id]
  if done then
    session.questions[id] = nil
    done(json, text)
  elseif self.strict then
    self:blame("an answer to no question: %s", text:sub(1, 120))
  end
end

-- -- what is offered ----------------------------------------------------------------------------------------------------------------

local CAPABILITIES <const> = '"logging":{},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}'

function server:capabilities(revision)
  if self.capability_bytes then return self.capability_bytes end
  local more = self.with_tasks and tasks.capability(revision) or ""
  return "{" .. (revision >= "2025-03-26" and '"completions":{},' or "") .. more .. CAPABILITIES .. "}"
end

-- True if a request to listen asked for a notification.
local function is_asked(filter, method, params)
  local kind = method:match "^notifications/(%l+)/list_changed$"
  if kind then return filter[kind .. "ListChanged"] end
  for _, uri in ipairs(filter.resourceSubscriptions or {}) do
    if uri == params.uri then return true end
  end
  for _, id in ipairs(filter.taskIds or {}) do
    if id == params.taskId then return true end
  end
end

-- The members of the params of a notification: a URI, or an id of a task.
local function members_of(params)
  for _, name in ipairs { "uri", "taskId" } do
    if params[name] then return ('"%s":%s'):format(name, raw.quote(params[name])) end
  end
end

--- Says that a list, a resource or a task has changed, to those that asked for it: on the streams of sessions, on
--- requests that listen, or to the program's client.
function server:announce(method, params)
  uv.run "nowait"
  params = params or {}
  for _, x in ipairs(self.listens) do
    if not (x.over or x.left) and is_asked(x.filter, method, params) then
      local meta = ('"_meta":{"%ssubscriptionId":%s}'):format(META, x.id)
      local more = members_of(params) and members_of(params) .. "," or ""
      x:emit(('{"jsonrpc":"2.0","method":"%s","params":{%s%s}}'):format(method, more, meta))
    end
  end
  if self.legacy[1] then
    local more = members_of(params) and ',"params":{' .. members_of(params) .. "}" or ""
    self:push(('{"jsonrpc":"2.0","method":"%s"%s}'):format(method, more))
  end
end

--- The requests to listen that have not ended.
function server:listening()
  uv.run "nowait"
  local open = {}
  for _, x in ipairs(self.listens) do
    if not (x.over or x.left or x.cancelled) then open[#open + 1] = x end
  end
  return open
end

--- The entries of a kind (tools, prompts, resources, templates) at a revision: { name =, bytes = } each.
function server:offered(kind, revision)
  if self.offers[kind] then return self.offers[kind] end
  self.catalogues[revision] = self.catalogues[revision] or catalogue.of(revision, self.scheme)
  return self.catalogues[revision][kind]
end

--- Offers these and no others. `list`: texts of definitions, or names of tools.
function server:offer(kind, texts)
  local made = {}
  for i, text in ipairs(texts) do
    if not text:find '^%s*[{%["]' and text ~= "null" then
      text = ('{"name":%s,"inputSchema":{"type":"object"}}'):format(raw.quote(text))
    end
    local name = raw.members(text) and cjson.decode(raw.at(text, "name") or raw.at(text, "uri") or "null")
    made[i] = { name = name or i, bytes = text }
  end
  self.offers[kind] = made
  return self
end

-- -- rules ----------------------------------------------------------------------------------------------------------------------------

--- From now on handles requests of this kind by `fault`, a function of the exchange, `count` times or always. `what`: a
--- method, "tools/call NAME", or "*". Of several rules for one request the oldest is used.
function server:when(what, fault, count)
  table.insert(self.rules, { what = what, fault = fault, left = count or math.huge })
  return self
end

--- Ends all rules: a correct server again.
function server:behave()
  self.rules, self.gate = {}, nil
  return self
end

local SUPPORTED <const> = { "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05" }

--- `options`: revision (one date, "dual" for all of them, or a list), early (how an older server refuses what comes
--- before `initialize`: "-32601", "-32602", "-32600", "-32000", "400", "html", "silent"), instructions, page (entries
--- in a page of a list), scheme (of the URIs of its resources: "stub"), tasks = true (calls run as MCP tasks, see
--- tasks.lua), strict = false (records no mistakes).
function server.new(options, methods_of)
  local wanted = options.revision or "2025-11-25"
  local self = setmetatable({
    received = {}, mistakes = {}, runs = {}, runs_of_all = 0, asked = 0,
    held = {}, listens = {}, with_listen = options.listen ~= false, running = {}, rules = {}, offers = {}, catalogues = {}, legacy = {}, handlers = {},
    early = options.early or "-32601", instructions = options.instructions, page = options.page or math.huge, strict = options.strict ~= false,
    with_tasks = options.tasks, tasks = {}, modern_ids = {}, overtaken = 0, ttl_ms = options.ttl_ms or 0, capability_bytes = options.capabilities,
    scheme = options.scheme or "stub", unfollowed = {},
  }, { __index = function(_, name) return methods_of[name] or server[name] end, __close = function(it, fault) it:close(fault) end })
  local all = wanted == "dual" and { MODERN, table.unpack(SUPPORTED) } or type(wanted) == "table" and wanted or { wanted }
  for _, revision in ipairs(all) do
    if revision == MODERN then
      self.is_modern = true
    else
      table.insert(self.legacy, revision)
    end
  end
  return self
end

--- A new conversation with a client. Of 2026-07-28, each request has one of its own.
function server.new_session(id) return { id = id, ids = {}, too_early = {} } end

--- Waits for requests whose cancellations came before them: they may be on connections that are not read yet.
function server:await_overtaken()
  pcall(wait.for_fact, "a request that its cancellation has overtaken", PATIENCE, function() return self.overtaken <= 0 end)
end

--- Fails if the client made mistakes.
function server:check_mistakes()
  if #self.mistakes > 0 then error("the upstream saw mistakes of its client:\n  " .. table.concat(self.mistakes, "\n  "), 2) end
end

return server
