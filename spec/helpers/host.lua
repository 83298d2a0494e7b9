-- lua/moonpool in plain Lua: an imitation of the host functions of C, a VM per `host.start`, and calls that record the
-- messages sent.
--   local vm = host.start { ["tools/add.lua"] = [[…]] }
--   vm.errors   the errors of load, or nil
--   vm:call("tools/call", params) -> result | nil, error;   vm.last is the call
--   vm.logs     { { level, event, fields }, … }

local base64 = require "spec.helpers.base64"
local jobs = require "spec.helpers.jobs"
local json = require "spec.helpers.json"
local store = require "spec.helpers.store"
local topics = require "spec.helpers.topics"
local waking = require "spec.helpers.waking"

local host = { json = json }

package.preload["moonpool.error_codes"] = function() return require("modules").error_codes end

local vm_mt = {}
vm_mt.__index = vm_mt

local string_mt, dump = debug.getmetatable "", string.dump

local function forget()
  for name in pairs(package.loaded) do
    if name:find "^moonpool" then package.loaded[name] = nil end
  end
  string_mt.__metatable, string.dump = nil, dump
end

-- In the binary, PCRE2 does this.
local regex = { compile = function(pattern) return { test = function(_, text) return text:find((pattern:gsub("\\d", "%%d"))) ~= nil end } end }

local GROUPS <const> = {
  "script", "rock", "config", "limits", "hooks", "task", "bus", "time", "random", "env", "log", "session", "call", "topic", "auth", "job", "semaphore",
  "store", "fs", "program", "upstream", "http", "sqlite", "digest", "base64", "seal", "secret", "cjson", "answers", "plan", "forward", "served", "metrics",
  "trace", "record", "policy", "redis", "postgres",
  "nodes",
}

-- { ["time.now"] = f } as C makes it: { time = { now = f } }.
local function grouped(members)
  local made = {}
  for _, group in ipairs(GROUPS) do made[group] = {} end
  for name, value in pairs(members) do
    local group, member = name:match "^(%w+)%.([%w_]+)$"
    made[group][member] = value
  end
  return made
end

host.grouped = grouped

--- Loads `scripts` (path -> text) into a new copy of the library. `options`: server, trust_full, root, now, page.
function host.start(scripts, options)
  options = options or {}
  forget()
  local vm = setmetatable({ logs = {}, sessions = {}, levels = {}, slept = {}, faults = 0, asked = {}, frozen = {}, begun = 0, served = 0 }, vm_mt)
  local list = {}
  for path, text in pairs(scripts) do list[#list + 1] = { path = path, text = text } end
  table.sort(list, function(a, b) return a.path < b.path end)
  vm.host = grouped {
    ["script.list"] = list, ["script.left_out"] = {}, ["script.libraries"] = { "exec", "fs", "http", "metrics", "postgres", "redis", "sqlite", "store" },
    ["script.root"] = options.root or "scripts", ["script.is_first_load"] = true, ["script.trust_full"] = options.trust_full or false,
    ["postgres.pool"] = function() return {} end, ["postgres.channel"] = function() return {} end,
    ["nodes.own"] = function() end, ["nodes.uid"] = function() end, ["nodes.leave"] = function() end,
    ["nodes.take"] = function() return {} end, ["nodes.settle"] = function() return false end,
    ["nodes.renumber"] = function() return false end, ["nodes.tell"] = function() return {} end,
    ["nodes.answer"] = function() end, ["nodes.lives"] = function() return false end,
    ["redis.connection"] = function() return {} end, ["redis.load"] = function() return 0 end,
    ["redis.channel"] = function() return {} end, ["sqlite.script"] = function() return 1 end,
    ["config.upstreams"] = options.upstreams or {}, ["limits.stream_queue"] = 1 << 20,
    ["limits.page"] = options.page or 1 << 20,
    ["limits.upstreams"] = { answer = 1 << 24, queue = 1 << 20, list_items = 10000, name = 64, keep = 600, list_bytes = 1 << 25, list_pages = 100,
      definition = 1 << 18, links = 1024, links_per_upstream = 16384, subscribed = 1024, subscribed_tasks = 256, rounds = 10, journal = 1 << 20,
      links_per_result = 256, questions_per_result = 16, questions_per_request = 256, subscribed_per_principal = 256,
      caller_tokens = 4096, questions = 8,
      questions_per_principal = 32, pending = 300 },
    ["upstream.channel"] = function() return nil, { outcome = "not_run", reason = "down" } end, ["upstream.catalogue"] = function() end,
    ["upstream.catalogue_hash"] = function() end, ["upstream.publications"] = function() return 0 end,
    ["upstream.callers"] = function() return {} end, ["upstream.count_token"] = function() end,
    ["upstream.count_refused"] = function() end, ["upstream.join"] = function(lines) return table.concat(lines, "\n") end,
    ["upstream.traits"] = function() return { has_high = true, has_unicode = true, has_default = true, has_odd_numbers = true, opened = 0 } end,
    ["upstream.words"] = function(_, words) return words end, ["upstream.hash"] = function(text) return "sha256:" .. text end,
    ["upstream.observed"] = function() end, ["upstream.open_channel"] = function() end,
    ["upstream.publish"] = function() return false end, ["upstream.claim"] = function() end, ["upstream.status"] = function() return {} end,
    ["upstream.describe"] = function() return true end,
    ["upstream.instance"] = ("0"):rep(32), ["upstream.hops"] = ("0"):rep(32),
    ["upstream.take_up"] = function() end, ["upstream.fetch"] = function() end,
    ["upstream.keep"] = function() return nil, { outcome = "unknown", reason = "busy" } end,
    ["call.current"] = function() end, ["bus.send_on"] = function() end, ["bus.relay"] = function() return true end,
    ["config.server"] = options.server or { name = "moonpool", version = "0.0-spec" },
    ["script.load"] = function(text, chunkname, env) return load(text, chunkname, "t", env) end,
    ["log.write"] = function(level, event, fields) vm.logs[#vm.logs + 1] = { level = level, event = event, fields = fields } end,
    ["log.wants"] = function() return true end,
    ["time.sleep"] = function(seconds) vm.slept[#vm.slept + 1] = seconds end,
    ["time.now"] = os.clock,
    ["time.boot"] = os.clock,
    ["script.edit_distance"] = require("modules").edit_distance,
    ["script.is_late"] = function() return false, 2 end,
    ["task.is_orphan"] = function() return false end, ["task.is_ending"] = function() return false end,
    ["script.protections"] = function(input)
      local function pass(ok, value, ...)
        if not ok and type(debug.getmetatable(value)) == "table" and debug.getmetatable(value).kind == input then error(value, 0) end
        return ok, value, ...
      end
      return function(f, ...) return pass(pcall(f, ...)) end, function(f, handler, ...)
        local found = table.pack(pass(pcall(f, ...)))
        if found[1] then return table.unpack(found, 1, found.n) end
        return false, select(2, pcall(handler, found[2]))
      end
    end,
    ["record.claim"] = function() return false end, ["record.room"] = function() return 1 << 18 end,
    ["record.replace"] = function(text, value, with) return (text:gsub((value:gsub("%p", "%%%0")), (with:gsub("%%", "%%%%")))) end,
    ["record.put"] = function(line) vm.recorded = line end, ["config.upstream_names"] = {}, ["script.is_replay"] = false, ["script.is_apart"] = false,
    ["script.is_confined"] = false,
    ["random.bytes"] = function(n) return ("\127\58\1\2"):rep(n):sub(1, n) end,
    ["random.id"] = function() return ("7f3a0102"):rep(4) .. "7f3a" end,
    ["session.open"] = function(call, revision, client, capabilities)
      vm.sessions[#vm.sessions + 1] = { call = call, revision = revision, client = client, capabilities = capabilities }
      return true
    end,
    ["session.settle"] = function() end,
    ["session.set_log_level"] = function(call, n) vm.levels[call.session_key or "one"] = n end,
    ["session.log_level"] = function(call)
      return not require("moonpool.protocol.era").is_stateless(call.revision) and vm.levels[call.session_key or "one"] or nil
    end,
    ["call.set_deadline"] = function(call, seconds) call.deadline = seconds end,
    ["call.header"] = function(call, name)
      if not call.headers then return nil end
      local value = call.headers[name]
      if type(value) == "table" then return value[1], #value end
      return value, value and 1 or 0
    end,
    ["session.id"] = function(call) return call.has_session and (call.session_id or "s1") or nil end,
    ["answers.freeze"] = function(generation, method, revision, uri, bytes)
      if generation == vm.served then vm.frozen[method .. " " .. revision .. " " .. (uri or "")] = bytes end
    end,
    ["served.begin"] = function()
      vm.begun = vm.begun + 1
      return vm.begun
    end,
    ["served.is_settled"] = function() return vm.begun == vm.served end,
    ["served.publish"] = function(holder, snapshot, generation, rows, has_private)
      if generation <= vm.served then return end
      holder.now, vm.served, vm.frozen, vm.plans, vm.plans_private = snapshot, generation, {}, rows, has_private
    end,
    ["forward.set"] = function() end, ["forward.suspend"] = function() end, ["forward.learn"] = function() end, ["forward.call"] = function() end,
    ["policy.begin"] = function() end, ["policy.around"] = function(way) return way.inner end, ["policy.trail"] = function() end,
    ["policy.resume"] = function() end, ["policy.turn"] = function(_, args) return { args = args } end, ["policy.args"] = function(turn) return turn.args end,
    ["policy.set_args"] = function(turn, args) turn.args = args end,
    ["plan.set_ends"] = function() end, ["plan.set_rights"] = function() end, ["call.audit_begin"] = function() end, ["call.audit_end"] = function() end,
    ["call.mark"] = function() return "0123456789abcdef" end,
    ["call.params"] = function(call) return call.params end,
    ["call.name_task"] = function(call, id) call.task = id end,
    ["call.measure"] = function() end, ["call.operator"] = function() end, ["metrics.tool"] = function(name) return name end,
    ["metrics.numbers"] = function() return { calls = 0, errors = 0, failures = {} } end,
    ["trace.begin"] = function() end, ["trace.context"] = function() end, ["trace.id"] = function() end, ["trace.idle"] = function() return {} end,
    ["metrics.prompt"] = function(name) return name end, ["metrics.resource"] = function(name) return name end,
    ["metrics.series"] = function() return 0 end, ["metrics.observe"] = function() end, ["metrics.count"] = function() end,
    ["metrics.declare"] = function(kind, name) return kind .. name end, ["metrics.member"] = function() return 0 end, ["metrics.enter"] = function() end,
    ["metrics.limit"] = 1000,
    ["call.clear_deadline"] = function(call) call.is_unhurried = true end, ["call.forwards"] = function() end,
    ["call.withdraw"] = function() end, ["call.question"] = function() return false end, ["call.count_question"] = function() end,
    ["call.count_fault"] = function() vm.faults = vm.faults + 1 end,
    ["call.ask"] = function(call, method, params)
      vm.asked[#vm.asked + 1] = { method = method, params = params }
      local answer = table.remove(call.answers or {}, 1)
      if answer == nil then return false end
      if answer.error then return nil, answer.error end
      return answer
    end,
    ["auth.count_unread"] = function() end, ["auth.keep_text"] = function() end, ["auth.kept_text"] = function() end,
    ["auth.enable"] = function(realm, scopes, metadata) vm.auth = { realm = realm, scopes = scopes, metadata = metadata } end,
    ["auth.principal_ref"] = function(who) return { who = who } end,
    ["auth.end_sign_in"] = function() end, ["auth.has_ended"] = function() end, ["auth.doubt_endings"] = function() return 0 end,
    ["auth.know_endings"] = function() end,
    ["call.forbid"] = function(call, scopes) call.forbidden = scopes return true end,
    ["script.guarded"] = xpcall, ["script.briefly"] = xpcall, ["config.grants"] = {}, ["config.folder"] = "/srv", ["secret.reveal"] = function() end,
    ["seal.make"] = function(text, about) return ("sealed:%d:%s\0"):format(#about, about) .. text end,
    ["seal.open"] = function(sealed, about)
      local start = ("sealed:%d:%s\0"):format(#about, about)
      return sealed:sub(1, #start) == start and sealed:sub(#start + 1) or nil
    end,
    ["base64.encode"] = base64.encode, ["auth.token_id"] = function(text) return text end, ["base64.decode"] = base64.decode,
    ["random.generator"] = function() return math.random end,
    ["cjson.new"] = function() return require("cjson").new() end,
    ["call.methods"] = {},
  }
  vm.store = store.add(vm.host)
  jobs.add(vm)
  topics.add(vm)
  waking.add(vm)
  package.loaded["moonpool.host"] = vm.host
  package.loaded["moonpool.json"] = json
  package.loaded["moonpool.revisions"] = options.revisions or require("modules").revisions
  package.loaded["moonpool.keys"] = require("modules").keys
  package.loaded["moonpool.events"] = require("modules").events
  package.loaded["moonpool.regex"] = regex
  vm.moonpool = require "moonpool"
  local loaded = vm.moonpool.load()
  if loaded ~= true then vm.errors = loaded end
  return vm
end

--- Undoes the changes that loading made to this Lua state.
host.stop = forget

local call_mt = {}
function call_mt.__index(self, name) return call_mt[name] or self.vm.host.call.methods[name] end
function call_mt:send(message) self.sent[#self.sent + 1] = message end
function call_mt:progress(...) self.sent[#self.sent + 1] = { method = "notifications/progress", ... } end

--- Makes a principal from a principal, its table, or an id. Takes `from` like principal.new.
function vm_mt:principal(who, from) -- luacheck: ignore self
  local principal = require "moonpool.access.principal"
  if who == nil or who == "anonymous" then return principal.anonymous end
  if who == "local" then return principal.lone end
  if principal.is(who) then return who end
  return assert(principal.new(type(who) == "table" and who or { id = who }, from))
end

--- Makes a call as C does. `fields` overrides fields of a call of an initialized client of the newest revision.
function vm_mt:new_call(method, params, fields)
  local call = {
    vm = self, sent = {}, method = method, revision = "2026-07-28", initialized = true, has_session = false, cancelled = false,
    principal = self:principal(), capabilities = {},
  }
  for name, value in pairs(fields or {}) do call[name] = value end
  call.principal = self:principal(call.principal)
  if call.revision == "none" then call.revision = nil end
  call.meta = params and params._meta
  return setmetatable(call, call_mt)
end

function vm_mt:call(method, params, fields)
  self.last = self:new_call(method, params, fields)
  local result, err = self.moonpool.dispatch(self.last, params, self.last.revision, method)
  if method == "resources/read" and json.bytes(result) then result = json.decode(json.bytes(result)) end -- the result of a fixed text is stored as bytes
  return result, err
end

--- Calls the tool `name` (tools/call). `fields` overrides fields of the call.
function vm_mt:tool(name, arguments, fields)
  return self:call("tools/call", { name = name, arguments = arguments }, fields)
end

--- The result of a list method, decoded from its bytes.
function vm_mt:read(method, params, fields)
  local result, err = self:call(method, params or {}, fields)
  return result and json.decode(json.bytes(result)), err
end

--- The entries of tools/list by name, decoded from the bytes; and the bytes.
function vm_mt:list(revision)
  local result = assert(self:call("tools/list", {}, { revision = revision or "2026-07-28" }))
  local bytes = json.bytes(result)
  local by_name = {}
  local decoded = json.decode(bytes)
  for _, entry in ipairs(decoded.tools) do by_name[entry.name] = entry end
  return by_name, bytes, decoded
end

return host
