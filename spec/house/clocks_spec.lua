-- What lasts for a time goes by the monotonic clock: the wall clock may step. Each file that reads the wall clock says
-- here what for.
local sources = require "spec.helpers.sources"

local WALL <const> = {
  -- what people and other programs read
  ["core/admin/conditions.c"] = "since when; when certificates end", ["core/admin/event_feed.c"] = "shown", ["core/admin/history.c"] = "shown",
  ["core/admin/history_others.c"] = "shown", ["core/admin/metrics.c"] = "shown", ["core/gateway/certificates/files.c"] = "shown",
  ["core/gateway/reload/status.c"] = "shown", ["core/gateway/reload_past.c"] = "shown", ["core/gateway/terminal.c"] = "shown",
  ["core/gateway/upgrade/links.c"] = "shown", ["core/lib/work/job_log.c"] = "shown", ["core/rpc/call/metrics.c"] = "shown",
  ["core/telemetry/log.c"] = "shown", ["core/telemetry/refusal.c"] = "shown", ["core/trace/export.c"] = "shown",
  ["core/upstream/channel/channel.c"] = "shown", ["core/upstream/record.c"] = "shown", ["core/upstream/upstreams.c"] = "shown",
  ["lua/moonpool/methods/operator.lua"] = "shown", ["lua/moonpool/lib/uuid.lua"] = "a part of the text, which only rises",
  -- times that others give, or that outlive the machine's start
  ["core/data/last_good.c"] = "the age of files", ["core/data/store_file.c"] = "what the file has outlives a restart",
  ["core/data/store.c"] = "limits of users, bounded after a step back", ["core/lib/principal.c"] = "the end of credentials",
  ["core/rpc/session/expiry.c"] = "the end of credentials", ["core/rpc/session/kept.c"] = "what the file has outlives a restart",
  ["core/rpc/request/hop.c"] = "compared with that of another machine", ["core/upstream/transport/http.c"] = "a date of a server",
  ["lua/moonpool/lib/cluster_nodes.lua"] = "compared with that of another machine",
  ["lua/moonpool/access/auth/api_keys.lua"] = "the last day of a key", ["lua/moonpool/access/auth/init.lua"] = "the end of credentials",
  ["lua/moonpool/access/auth/introspection.lua"] = "the end of credentials", ["lua/moonpool/lib/http/retry.lua"] = "a date of a server",
  ["lua/moonpool/lib/jwt/init.lua"] = "the end of credentials", ["lua/moonpool/lib/jwt/remote.lua"] = "the store outlives a restart",
  ["lua/moonpool/lib/cluster_operation.lua"] = "until the server of the cluster has said what its own is",
  ["lua/moonpool/calls/client_request.lua"] = "the end of a text that a client keeps",
  ["lua/moonpool/upstream/auth/init.lua"] = "the end of credentials; the store outlives a restart",
  ["lua/moonpool/sign_in/browser.lua"] = "the end of a form that a browser keeps", ["lua/moonpool/sign_in/waits.lua"] = "the store outlives a restart",
  ["lua/moonpool/sign_in/people.lua"] = "the store outlives a restart", ["lua/moonpool/sign_in/provider.lua"] = "the end of credentials",
  ["lua/moonpool/sign_in/families.lua"] = "the store outlives a restart", ["lua/moonpool/sign_in/tokens.lua"] = "the end of credentials",
  ["lua/moonpool/cluster/shared_switches.lua"] = "what outlives a restart",
  ["lua/moonpool/things/job.lua"] = "times of day", ["lua/moonpool/things/limit.lua"] = "days and months",
  -- what scripts get
  ["core/lib/time.c"] = "scripts", ["lua/moonpool/lib/time.lua"] = "scripts", ["lua/moonpool/registry/sandbox.lua"] = "scripts",
  ["lua/moonpool/replay/hooks.lua"] = "scripts", ["lua/moonpool/runtime/outside_hooks.lua"] = "scripts",
}

local function reads_wall_clock(path, text)
  if path:find "%.lua$" then return text:find "host%.time%.clock" or text:find "os%.time%f[^%w_]" end
  text = text:gsub("/%*.-%*/", "")
  return text:find "CLOCK_REALTIME" or text:find "%f[%w_]time%(NULL%)" or text:find "gettimeofday"
end

describe("the wall clock", function()
  it("is read where a step of it does no harm, for a reason", function()
    local complaints, seen = {}, {}
    for _, folder in ipairs { "core", "lua/moonpool" } do
      sources.each(folder, function(path, text)
        local is_tool = path:find "^lua/moonpool/workbench/" or path:find "^lua/moonpool/specs/"
        if not is_tool and reads_wall_clock(path, text) then seen[path] = true end
      end, "%.[ch]$", "%.lua$")
    end
    for path in pairs(seen) do
      if not WALL[path] then complaints[#complaints + 1] = path .. " reads the wall clock" end
    end
    for path in pairs(WALL) do
      if not seen[path] then complaints[#complaints + 1] = path .. " reads no wall clock" end
    end
    table.sort(complaints)
    assert.equal("", table.concat(complaints, "\n"))
  end)
end)
