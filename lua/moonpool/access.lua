-- Who may see and use what: the scopes of a thing, and its `visible`.
--   thing      a tool, a prompt, a resource; one with `is_private` is not for everybody
--   audience   what decides what somebody sees, as text: the scopes held, and where `visible` counts the whole principal

local host = require "moonpool.host"
local errors = require "moonpool.errors"
local failure = require "moonpool.failure"
local principal = require "moonpool.principal"

local access = {}

local has_visible = false       -- whether anything that is served has a `visible`

--- Whether anything that is served is private.
access.has_private = false

--- A new registry.
function access.set(any_visible, any_private) has_visible, access.has_private = any_visible, any_private end

-- -- one thing --------------------------------------------------------------------------------------------------------

-- Fails once in the log, and hides each time.
local function failed(thing, value)
  if thing.visible_failed then return end
  thing.visible_failed = true
  local why = failure.reason(value)
  host.log("error", "visible failed", { name = thing.name, file = host.root .. "/" .. thing.path, why = why,
    hint = "it is hidden until 'visible' gives an answer: it may not wait, nor ask anything of the network" })
end

local function shows(thing, p)
  local ok, value = host.briefly(thing.visible, failure.handler, p)
  if not ok then failed(thing, value) end
  return ok and value ~= nil and value ~= false
end

--- What decides of a principal and a thing: "open", "hidden" (its `visible`), or "lacking" and the scopes that are missing.
function access.verdict(p, thing)
  if thing.visible and not shows(thing, p) then return "hidden" end
  local allowed, missing = principal.allows(p, thing.scopes)
  if allowed then return "open" end
  return "lacking", missing
end

--- Whether it is in the principal's lists.
function access.sees(p, thing)
  return not thing.is_private or (principal.allows(p, thing.scopes) and (not thing.visible or shows(thing, p)))
end

local asked_for = setmetatable({}, { __mode = "k" })       -- such an error -> the scopes

--- The error that sends a client to ask for scopes.
function access.forbidden(scopes)
  local text = table.concat(scopes, " ")
  local err = errors.new("invalid_params", "this needs the scope" .. (scopes[2] and "s " or " ") .. text)
  asked_for[err] = text
  return err
end

--- The call ends with this error: where its transport has a challenge, that says which scopes it needs (A-5).
function access.challenge(call, err)
  local scopes = asked_for[err]
  if scopes then host.forbid(call, scopes) end
end

--- The thing, where the call's principal may have it; nil: it is as if it were not there; nil and an error: there is a way to it.
function access.find(call, thing)
  if not thing or not thing.is_private then return thing end
  local p = call.principal
  local verdict = access.verdict(p, thing)
  if verdict == "open" then return thing end
  if verdict == "lacking" and principal.can_ask(p, thing.scopes) then return nil, access.forbidden(thing.scopes) end
end

--- call:needs("scope", …): ends the call unless its principal has all of them.
function host.call_methods.needs(call, ...)
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

-- -- who follows --------------------------------------------------------------------------------------------------------

local LONGEST = 4096        -- bytes of an audience that is a whole principal; beyond it is its scopes alone

local function audience_of(p)
  local whole = has_visible and principal.pack(p)
  return whole and #whole <= LONGEST and whole or "=" .. table.concat(principal.held(p), " ")
end

local audiences = setmetatable({}, { __mode = "k" })       -- principal -> { text, whether it was made with `visible` in mind }

--- A session follows what it follows as whoever its last request was from: a new token may have other scopes. That matters
--- where something is private.
function access.follow_as(call)
  if not call.has_session then return end
  local p = call.principal
  local known = audiences[p]
  if not known or known[2] ~= has_visible then
    known = { audience_of(p), has_visible }
    audiences[p] = known
  end
  host.follow_as(call, known[1])
end

--- A topic for one principal's ears.
function access.topic(base, p) return base .. "\0" .. audience_of(p) end

-- Of somebody whose scopes alone are known `visible` is not asked.
local function audience_sees(audience, thing)
  if not thing.is_private then return true end
  local scopes = audience:match "^=(.*)$"
  if scopes then return not thing.visible and principal.cover(scopes, thing.scopes) end
  return access.sees(principal.unpack(audience), thing)
end

--- Runs publish(topic) for every audience of a topic that `wants` says true of.
local function each_audience(base, wants, publish)
  for _, audience in ipairs(host.audiences(base)) do
    if wants(audience) then publish(base .. "\0" .. audience) end
  end
end

--- publish(topic) for all who follow `base` and see the thing.
function access.tell(base, thing, publish)
  each_audience(base, function(audience) return audience_sees(audience, thing) end, publish)
end

-- Whether who sees what is now (`is`, a thing, or nil) or saw what was ({ scopes, visible }, or nil) has a list that changed.
local function concerns(audience, was, is, is_other)
  local sees = is ~= nil and audience_sees(audience, is)
  local saw = was ~= nil and principal.cover(audience:match "^=(.*)$" or principal.unpack(audience), was.scopes)
  if saw and was.visible and is and is.visible then saw = sees end        -- nobody can ask the old one: most likely it was the same
  return saw ~= sees or (sees and is_other)
end

--- publish(topic) for all who follow `base` and whose list changed: `changes` is a list of { was =, is =, is_other = }.
function access.tell_changes(base, changes, publish)
  each_audience(base, function(audience)
    for _, change in ipairs(changes) do
      if concerns(audience, change.was, change.is, change.is_other) then return true end
    end
    return false
  end, publish)
end

return access
