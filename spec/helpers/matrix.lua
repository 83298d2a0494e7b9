-- The matrix: 14 forms of upstreams × 7 kinds of clients × each feature of the protocol. A spec file of
-- spec/gateway/matrix has the features of one group; its clients have two principals, of which the second one has a call
-- in flight and sees nothing of the first one's.
--   local m = matrix.group "calls"
--   lazy_setup(function() m:begin() end)
--   lazy_teardown(function() m:finish() end)
--   m:feature("an image", function(cell) … end)       a check of each of its cells
--   m:specs(it)                                       and that each feature had all its cells
-- A cell has: form, kind (of the client), u (the stub), ann, bob (clients, see matrix/peers.lua), prefix, scheme,
-- expected ("whole", "converted" or "refused", by matrix/features.lua), oldest (the older of both revisions).
-- Cells that differ are listed in matrix/differences.lua; one that does not differ any more fails.
local assert = require "luassert"
local cjson = require "cjson.safe"
local credentials = require "spec.helpers.credentials"
local differences = require "spec.helpers.matrix.differences"
local direct = require "spec.helpers.upstream.direct"
local features = require "spec.helpers.matrix.features"
local forms = require "spec.helpers.matrix.forms"
local peers = require "spec.helpers.matrix.peers"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local matrix = {}
matrix.__index = matrix

local META <const> = "io.modelcontextprotocol/"

--- Everything that a client can be asked.
matrix.CAN = { elicitation = { form = {}, url = {} }, sampling = { tools = {}, context = {} }, roots = { listChanged = true } }

-- The features together ask more than a client is asked in a minute.
matrix.constants = { upstream_questions_per_principal = 100000 }

local function label(kind) return kind.revision .. " " .. kind.transport end

-- -- what is compared ---------------------------------------------------------------------------------------------------------

--- A result without the members that all results of 2026-07-28 have, and those that the gateway adds.
function matrix.plain(result)
  if type(result) ~= "table" then return result end
  result.resultType, result.ttlMs, result.cacheScope = nil, nil, nil
  if result._meta then
    result._meta[META .. "serverInfo"] = nil
    if next(result._meta) == nil then result._meta = nil end
  end
  return result
end

-- -- cells ----------------------------------------------------------------------------------------------------------------------

local cell = {}
cell.__index = cell

--- The name of a thing of this upstream.
function cell:named(name) return self.form.name .. "_" .. name end

--- A URI of this upstream.
function cell:uri(place) return self.form.name .. "://" .. place end

--- A value with the URIs of the plain stub.
function cell:unnamed(value)
  return cjson.decode((cjson.encode { value }:gsub(self.form.name .. ":\\/\\/", "stub:\\/\\/"):gsub(self.form.name .. "_", "")))[1]
end

--- A client of a revision before a stub of it, without a gateway.
function cell:direct(revision) return self.m:direct_client(revision or self.oldest) end

--- Calls a tool of this upstream for the first principal.
function cell:call(name, arguments, meta)
  return self.ann:call("tools/call", { name = self:named(name), arguments = arguments or cjson.empty_array, _meta = meta })
end

--- Ends with all notes of this cell's upstream delivered: a call that is answered comes after them.
function cell:fence() upstream.text(self.ann:call("tools/call", { name = self:named "echo", arguments = { fence = 1 } })) end

--- The methods of what came for the first principal, but answers, in order.
function cell:methods()
  local list = {}
  for i, note in ipairs(self.ann:notes()) do list[i] = note.method end
  return list
end

--- Ends the call of the second principal, which is in flight during the check.
function cell:end_bobs()
  if not self.bobs then return end
  self.u:release(self.bobs_key)
  assert.equal("released", upstream.text(self.bobs:answer()))
  if self.bob.kind.transport == "http" then self.bobs:close() end
  self.bobs = nil
end

--- True if the calls of both principals are in one program, whose messages do not say to which call they belong.
function cell:is_shared() return self.form.shared == true and self.kind.transport ~= "stdio" end

--- Opens a call of the first principal that waits at the upstream; its stream, and the exchange.
function cell:hold(meta, arguments)
  self.m.holds = self.m.holds + 1
  self.key = "ann " .. self.m.holds
  local all = { key = self.key }
  for name, value in pairs(arguments or {}) do all[name] = value end
  local stream = self.ann:open("tools/call", { name = self:named "hold", arguments = all, _meta = meta })
  return stream, self.u:wait_held(1, all.key)[1]
end

--- Ends the call that waits, and returns once its answer and all notes before it have come.
function cell:release(stream)
  self.u:release(self.key)
  assert.equal("released", upstream.text(stream:answer()))
  self:fence()
  if self.kind.transport == "http" then stream:close() end
end

--- Waits for `count` notes; returns them.
function cell:wait_notes(count)
  local function named() return count .. " notes; what came: " .. cjson.encode(self.ann:notes()) end
  return wait.for_fact(named, 10, function()
    local notes = self.ann:notes()
    return #notes >= count and notes
  end)
end

-- -- a group --------------------------------------------------------------------------------------------------------------------

--- A client of a revision before a stub of it, which the group keeps.
function matrix:direct_client(revision)
  local kept = self.directs[revision]
  if not kept then
    local u = upstream.start { revision = revision, transport = "stdio", instructions = "direct" }
    kept = { u = u, c = direct.start(u, revision) }
    self.directs[revision] = kept
  end
  return kept.c, kept.u
end

function matrix:begin()
  self.stubs, self.directs, self.peers, self.seen, self.differing = {}, {}, {}, {}, {}
  local entries = {}
  for _, form in ipairs(forms.all) do
    local options = { revision = form.revision, transport = form.transport, scheme = form.name, page = 5, instructions = "Of " .. form.name .. "." }
    for name, value in pairs(form.options or {}) do options[name] = value end
    for name, value in pairs(self.options.stub or {}) do options[name] = value end
    local u = upstream.start(options)
    self.stubs[form.name] = u
    if self.options.prepare then self.options.prepare(u, form) end
    entries[form.name] = { instructions = true }
    for name, value in pairs(self.options.entry or {}) do entries[form.name][name] = value end
    for name, value in pairs((self.options.entries or {})[form.name] or {}) do entries[form.name][name] = value end
  end
  self.config = { upstreams = upstream.entries(self.stubs, entries), limits = self.options.limits }
  self.g = upstream.gateway(self.stubs, {
    entries = entries, workers = 2, scripts = { ["auth/main.lua"] = credentials.script }, config = { limits = self.options.limits },
    constants = matrix.constants,
  })
end

function matrix:finish()
  for _, pair in pairs(self.peers) do
    for _, one in pairs(pair) do one:close() end
  end
  do local _ <close> = self.g end -- luacheck: ignore 211
  for _, kept in pairs(self.directs) do
    kept.c:close()
    kept.u:close()
  end
  for _, u in pairs(self.stubs) do u:close() end
end

-- True if a list has something of each upstream, whose name is the beginning of the `member` of its things.
local function has_all(self, one, list, member)
  local found, cursor = {}, nil
  repeat
    local page = one:result(list .. "/list", { cursor = cursor })
    for _, thing in ipairs(page[list]) do found[thing[member]:match "^%w+"] = true end
    cursor = page.nextCursor
  until not cursor
  for name in pairs(self.stubs) do
    if not found[name] then return false end
  end
  return true
end

-- The clients of both principals, of one kind; each has seen the lists of all upstreams.
function matrix:pair(kind)
  local pair = self.peers[kind]
  if pair then return pair end
  local can = self.options.capabilities and self.options.capabilities(kind) or matrix.CAN
  pair = { ann = peers.start(self, kind, "ann-1", can, matrix.constants), bob = peers.start(self, kind, "bob-1", can, matrix.constants) }
  self.peers[kind] = pair
  for _, one in pairs(pair) do
    for list, member in pairs { tools = "name", prompts = "name", resources = "uri" } do
      wait.for_fact("the " .. list .. " of all upstreams", 30, function() return has_all(self, one, list, member) end)
    end
    if self.options.listen then one:listen(self.options.listen) end
  end
  return pair
end

-- Runs the check of a cell while the other principal has a call in flight at the same upstream; nil, or what is wrong.
local function run_cell(self, one, check)
  local bob = one.bob
  one.ann:mark()
  bob:mark()
  if not self.options.without_bob then
    self.holds = self.holds + 1
    one.bobs_key = "bob " .. self.holds
    one.bobs = bob:open("tools/call", { name = one:named "hold", arguments = { key = one.bobs_key } })
    one.u:wait_held(1, one.bobs_key)
  end
  local ok, fault = pcall(check, one)
  one:end_bobs()
  if ok and not self.options.shared_notes then
    local strange = bob:notes()
    if #strange > 0 then ok, fault = false, "the other principal got " .. cjson.encode(strange) end
  end
  if not ok then return type(fault) == "table" and tostring(fault.message or fault[1] or cjson.encode(fault)) or tostring(fault) end
end

local function each_cell(self, feature, kind, check)
  local pair = self:pair(kind)
  local faults = {}
  for _, form in ipairs(feature.once and { forms.all[1] } or forms.all) do
    -- a server of all revisions is spoken to in an older one for a client that is older and can be asked, as all can
    -- for which the group says nothing else
    local is_older = form.is_of_all and not self.options.capabilities
    local serves = not feature.once and (is_older and kind.revision or form.revision) or nil
    local one = setmetatable({
      m = self, form = form, kind = kind, u = self.stubs[form.name], ann = pair.ann, bob = pair.bob,
      expected = features.expected(feature, kind.revision, form.keeps_nothing and feature.by_session and "none" or serves),
      oldest = serves and (kind.revision < serves and kind.revision or serves) or kind.revision,
    }, cell)
    self.seen[feature] = (self.seen[feature] or 0) + 1
    local fault = run_cell(self, one, check)
    local row = differences.find(feature[1], label(kind), form.name)
    if row then
      row.is_met = true
      if not fault then fault, row = "it does not differ any more: " .. row.why, nil end
    end
    if fault and not row then
      faults[#faults + 1] = ("%s before %s, which should be %s: %s"):format(label(kind), form.name, one.expected, fault)
    end
  end
  if #faults > 0 then error(#faults .. " cells differ:\n" .. table.concat(faults, "\n"), 0) end
end

--- How a feature is checked in each of its cells.
function matrix:feature(name, check)
  local feature = features.of(name)
  assert(feature.group == self.name, name .. " is of the group " .. feature.group)
  self.checks[#self.checks + 1] = { feature, check }
end

-- Each feature of the group had all its cells, and what is listed as different was.
local function count(self)
  local total = 0
  for _, feature in ipairs(features.all) do
    if feature.group == self.name then
      assert.equal(features.cells(feature, #forms.clients, #forms.all), self.seen[feature] or 0, feature[1])
      total = total + self.seen[feature]
    end
  end
  assert.equal(features.total(self.name, #forms.clients, #forms.all), total)
  for _, row in ipairs(differences.all) do
    if features.of(row.feature).group == self.name then assert.is_true(row.is_met == true, "no cell is like this: " .. cjson.encode(row)) end
  end
end

--- Makes the specs of the group.
function matrix:specs(it)
  for _, one in ipairs(self.checks) do
    for _, kind in ipairs(forms.clients) do
      it(("%s: a client of %s before each form"):format(one[1][1], label(kind)), function() each_cell(self, one[1], kind, one[2]) end)
    end
  end
  it("has each feature of the group in each cell", function() count(self) end)
end

--- A group of features. `options`: stub (options of all stubs), entry (members of each upstream's configuration), entries (the same by form), prepare
--- (a function of each stub and form), capabilities (a function of the kind of client), limits, listen (a filter: the clients hear of
--- changes), without_bob (no call of the other principal), shared_notes (the other principal is notified, too).
function matrix.group(name, options) return setmetatable({ name = name, options = options or {}, checks = {}, holds = 0 }, matrix) end

return matrix
