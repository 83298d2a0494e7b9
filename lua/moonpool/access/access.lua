-- Decides which principals see and use a thing: by its scopes and its function `visible`.
--   thing      a tool, prompt or resource; `is_private` if it requires scopes or has `visible`
--   audience   a text that is equal for principals that see the same things: their scopes, and with `visible` the whole principal

local host = require "moonpool.host"
local errors = require "moonpool.runtime.rpc_error"
local failure = require "moonpool.runtime.outcome"
local principal = require "moonpool.access.principal"

local access = {}

-- The served things. Its member `now` is a snapshot of the registry, which never changes; the registry replaces it in
-- one step. A task can be preempted between two reads of `now`, so a function reads it once.
local served = { now = { has_visible = false, has_private = false } }

--- For the registry alone: the table whose member `now` is the current snapshot.
access.served = served

--- True if anything that is served has scopes or `visible`.
function access.has_private() return served.now.has_private end

-- -- the decision about a thing ---------------------------------------------------------------------------------------

-- Calls `visible` of a thing. An error hides the thing; it is logged once for each thing.
local function failed(thing, value)
  if thing.visible_failed then return end
  thing.visible_failed = true
  local why = failure.reason(value)
  host.log.write("error", "visible function failed", { name = thing.name, file = host.script.root .. "/" .. thing.path, why = why,
    hint = "hidden until 'visible' returns a value: 'visible' may not wait or use the network" })
end

-- True if `visible` of a thing shows it. `failures`, or nil: the set of things whose `visible` failed for one of the
-- audiences that are notified together. `visible` is not called again for other audiences: it may take 50 ms of
-- processor time, and all audiences wait for the same bus message.
local function shows(thing, p, failures)
  if failures and failures[thing] then return false end
  local ok, value = host.script.briefly(thing.visible, failure.handler, p)
  if not ok then
    failed(thing, value)
    if failures then failures[thing] = true end
  end
  return ok and value ~= nil and value ~= false
end

--- The decision about a principal and a thing: "open", "hidden" (by `visible`), or "lacking" and the missing scopes.
function access.verdict(p, thing)
  if thing.visible and not shows(thing, p) then return "hidden" end
  local allowed, missing = principal.allows(p, thing.scopes)
  if allowed then return "open" end
  return "lacking", missing
end

--- True if the thing is in the principal's lists. `failures`: see shows(); nil for a single question.
function access.sees(p, thing, failures)
  return not thing.is_private or (principal.allows(p, thing.scopes) and (not thing.visible or shows(thing, p, failures)))
end

local asked_for = setmetatable({}, { __mode = "k" })       -- an error of missing scopes -> the scopes

--- The error for a call that lacks scopes; it names the scopes that a client can request from its issuer.
function access.forbidden(scopes)
  local text = table.concat(scopes, " ")
  local err = errors.new("invalid_params", "this needs the scope" .. (scopes[2] and "s " or " ") .. text)
  asked_for[err] = text
  return err
end

local MAX_ASKED_BYTES = 4096        -- limit of the scopes of a challenge: clients and proxies refuse headers of more than 8 KB

--- The scopes that the client of a principal is to ask its issuer for where it lacks some: those that its token has and
--- those that are needed. A client asks for these alone, and its new token has no others.
function access.to_ask(p, needed)
  local all, seen = {}, {}
  for scope in (table.concat(principal.facts(p).scopes, " ") .. " " .. needed):gmatch "%S+" do
    if not seen[scope] then all[#all + 1], seen[scope] = scope, true end
  end
  local text = table.concat(all, " ")
  return #text <= MAX_ASKED_BYTES and text or needed
end

--- If `err` is about missing scopes: answers with HTTP 403 and a challenge, if the transport allows that (A-5).
function access.challenge(call, err)
  local needed = asked_for[err]
  if needed then host.call.forbid(call, needed, access.to_ask(call.principal, needed)) end
end

--- The thing, if the call's principal may use it; nil if the thing must look as if it did not exist; nil and an error
--- if scopes are missing. A thing that differs between clients has `resolve`.
function access.find(call, thing)
  if thing and thing.resolve then thing = thing.resolve(call) end
  if not thing or not thing.is_private then return thing end
  local p = call.principal
  local verdict = access.verdict(p, thing)
  if verdict == "open" then return thing end
  if verdict == "lacking" and principal.can_ask(p, thing.scopes) then return nil, access.forbidden(thing.scopes) end
end

--- call:needs("scope", …): ends the call unless its principal has all of these scopes.
function host.call.methods.needs(call, ...)
  local scopes = { ... }
  for _, scope in ipairs(scopes) do
    local why = principal.scope_trouble(scope)
    if why then error("call:needs: " .. why, 2) end
  end
  local p = call.principal
  local allowed, missing = principal.allows(p, scopes)
  if allowed then return end
  if principal.can_ask(p, scopes) then failure.refuse(access.forbidden(scopes)) end
  failure.fail("this needs the scope " .. table.concat(missing, " ") .. ", which " .. p.id .. " does not have")
end

-- -- audiences ----------------------------------------------------------------------------------------------------------

local MAX_AUDIENCE_BYTES = 4096        -- limit of the bytes of an audience with the whole principal; a larger principal has an audience of only its scopes

local function audience_of(p, has_visible)
  local whole = has_visible and principal.pack(p)
  return whole and #whole <= MAX_AUDIENCE_BYTES and whole or "=" .. table.concat(principal.held(p), " ")
end

-- Which of `scopes` the principal holds: a bit for each, the first is the lowest.
local function scope_bits(p, scopes)
  local bits = 0
  for i, scope in ipairs(scopes) do
    if principal.allows(p, { scope }) then bits = bits | 1 << i - 1 end
  end
  return bits
end

--- The bits of the scopes that a thing requires, as scope_bits has them of a principal; nil: not all have one. And the
--- generation of the snapshot whose bits they are.
function access.bits_of(scopes)
  local snapshot, bits = served.now, 0
  for _, scope in ipairs(scopes or {}) do
    local at
    for i, known in ipairs(snapshot.plan_scopes) do at = known == scope and i or at end
    if not at then return nil end
    bits = bits | 1 << at - 1
  end
  return bits, snapshot.generation
end

-- principal -> { generation, audience, bits }: the rights of the principal in a snapshot: its audience, and the scopes
-- of call plans that it holds.
local rights = setmetatable({}, { __mode = "k" })

--- Finds the rights of the principal of a call, for C, which serves its next calls by their plans. And a session's
--- subscriptions are evaluated for the principal of its latest request, since a refreshed token may carry other scopes.
--- Only needed when some thing is private.
function access.subscribe_as(call)
  local p, snapshot = call.principal, served.now
  local known = rights[p]
  if not known or known.generation ~= snapshot.generation then
    known = { generation = snapshot.generation, audience = audience_of(p, snapshot.has_visible), bits = scope_bits(p, snapshot.plan_scopes) }
    rights[p] = known
  end
  host.plan.set_rights(call, known.generation, known.bits, known.audience)
  if call.has_session then host.session.set_audience(call, known.audience) end
end

--- The topic of `base` for the audience of one principal.
function access.topic(base, p) return base .. "\0" .. audience_of(p, served.now.has_visible) end

-- True if a principal or an audience sees a thing. For an audience that has only scopes, `visible` is not called.
local function audience_sees(audience, thing, failures)
  if not thing.is_private then return true end
  local scopes = audience:match "^=(.*)$"
  if scopes then return not thing.visible and principal.cover(scopes, thing.scopes) end
  return access.sees(principal.unpack(audience), thing, failures)
end

--- Runs publish(topic) for every audience of `base` for which wants(audience, failures) is true.
local function each_audience(base, wants, publish)
  local failures = {}
  for _, audience in ipairs(host.topic.audiences(base)) do
    if wants(audience, failures) then publish(base .. "\0" .. audience) end
  end
end

--- Runs publish(topic) for the subscribers of `base` that see the thing.
function access.notify(base, thing, publish)
  each_audience(base, function(audience, failures) return audience_sees(audience, thing, failures) end, publish)
end

-- True if a list changed for an audience: it sees the new thing (`is`, or nil), or saw the old one (`was`, { scopes,
-- visible }, or nil).
local function concerns(audience, failures, was, is, is_other)
  local sees = is ~= nil and audience_sees(audience, is, failures)
  local saw = was ~= nil and principal.cover(audience:match "^=(.*)$" or principal.unpack(audience), was.scopes)
  if saw and was.visible and is and is.visible then saw = sees end        -- the old function no longer exists: assume that its decision was the same
  return saw ~= sees or (sees and is_other)
end

--- Runs publish(topic) for the subscribers of `base` whose list changed. `changes`: a list of { was =, is =, is_other =
--- }.
function access.notify_changes(base, changes, publish)
  each_audience(base, function(audience, failures)
    for _, change in ipairs(changes) do
      if concerns(audience, failures, change.was, change.is, change.is_other) then return true end
    end
    return false
  end, publish)
end

return access
