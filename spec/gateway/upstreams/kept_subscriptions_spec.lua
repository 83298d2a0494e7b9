-- With store.file a session goes on in the next process, and what it has subscribed to at upstreams is subscribed to
-- again: on the channel that all clients share once the upstream is there, on a session's own one when it is opened.
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local UPDATED <const>, URI <const> = "notifications/resources/updated", "stub://text"

-- How often the upstream was asked to notify of changes of the resource.
local function times_asked(u)
  if not u.is_modern then return #u:all { method = "resources/subscribe" } end
  local count = 0
  for _, request in ipairs(u:all { method = "subscriptions/listen" }) do
    local uris = request.json.params.notifications.resourceSubscriptions or {}
    count = count + (#uris > 0 and 1 or 0)
  end
  return count
end

for _, row in ipairs(upstream.kinds()) do
  describe(("a resource of an upstream of %s over %s, to which a client has subscribed before a restart,"):format(row[1], row[2]), function()
    it("is subscribed to again, and the client is notified", function()
      local u <close> = upstream.start { revision = row[1], transport = row[2] }
      local g = upstream.gateway({ one = u }, {
        entries = { one = { prefix = "", refresh = "1h", list_wait = "20s" } }, workers = 2, config = { store = { file = "data/store.db" } },
        files = { ["data/.keep"] = "" },
      })
      local me = g:client "2025-11-25"
      wait.for_fact("the lists", 20, function() return #me:result("tools/list", {}).tools > 0 end)
      me:result("resources/subscribe", { uri = URI })
      local before = times_asked(u)
      assert.is_true(before > 0)
      g:wait_status(function(status) return status.gauges.kept_sessions_behind == 0 and status.gauges.store_unsaved == 0 end)
      g:kill()
      g.stopped = true
      local new <close> = gateway.start { dir = g.dir }
      me.gateway = new
      local is_own = row[2] == "http" and not u.is_modern
      if is_own then me:result("resources/read", { uri = URI }) end
      wait.for_fact("another subscription", 30, function() return times_asked(u) > before end)
      local stream = me:get_stream()
      stream:head()
      u:announce(UPDATED, { uri = URI })
      assert.equal(URI, stream:wait_event(UPDATED, 20).json.params.uri)
      stream:close()
      me:delete()
      me:close()
    end)
  end)
end
