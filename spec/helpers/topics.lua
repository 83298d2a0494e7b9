-- Subscribing, listening and publishing in the host of spec/helpers/host.lua: every call is recorded for specs.
--   vm.followed     topic -> true         vm.published    { { topic =, audience =, plain =, before =, after = }, … }
--   vm.listening    the topics of the last host.listen, and vm.closing what ends it
--   vm.audiences    of every topic; empty at first
-- Topics are without their audiences, which are kept beside them: vm.follower, by topic, and vm.listener.
local json = require("modules").json.lua

local topics = {}

local function split(topic)
  local base, audience = topic:match "^([^%z]*)%z(.*)$"
  return base or topic, audience
end

function topics.add(vm)
  vm.followed, vm.published, vm.follower, vm.audiences = {}, {}, {}, { "=" }

  function vm.host.topic.audiences() return vm.audiences end
  function vm.host.topic.revived() return {} end

  function vm.host.session.revived() return {} end

  function vm.host.call.id(call) return call.id or "1" end

  function vm.host.session.subscribe(call, topic)
    if not call.has_session then return nil, "no session" end
    if call.no_room then return nil, "too many" end
    local base, audience = split(topic)
    vm.followed[base], vm.follower[base] = true, audience
    return true
  end

  function vm.host.session.set_audience(_, audience)
    for topic in pairs(vm.follower) do vm.follower[topic] = audience end
  end

  function vm.host.session.unsubscribe(_, topic) vm.followed[topic] = nil end

  function vm.host.topic.publish(topic, plain, before, after)
    local base, audience = split(topic)
    vm.published[#vm.published + 1] = { topic = base, audience = audience, plain = plain, before = before, after = after }
  end

  function vm.host.call.listen(call, wanted, closing, acknowledged)
    if call.no_room then return nil, "too many" end
    call:send(json.decode(acknowledged))
    vm.listening, vm.listener, vm.closing = {}, {}, closing
    for i, topic in ipairs(wanted) do vm.listening[i], vm.listener[i] = split(topic) end
    return true
  end
end

return topics
