-- The functions that C calls: load once, dispatch for each request, note for each notification, and deliver for each
-- message from another worker.

local host = require "moonpool.host"
local lazy = require "moonpool.runtime.lazy"
require "moonpool.runtime.weak"
if host.script.is_replay then require "moonpool.replay.outside".close() end
host.script.is_clustered = host.config.cluster ~= nil and not (host.script.is_replay or host.script.has_specs)
if host.script.is_clustered then
  require "moonpool.lib.store_redis"
  require "moonpool.lib.cluster_nodes"
end
if host.config.upstreams[1] or host.script.has_specs then require "moonpool.federation.notifications" end
if host.script.has_specs then require "moonpool.specs.fakes" end

local auth = lazy "moonpool.access.auth"
local audit = require "moonpool.methods.audit"
local reload_diff = lazy "moonpool.registry.reload_diff"
local dispatch = require "moonpool.methods.dispatch"
local exact = require "moonpool.runtime.exact"
local federated = lazy "moonpool.federation.federated"
local bus = require "moonpool.runtime.bus"
local job = lazy "moonpool.things.job"
local loader = require "moonpool.registry.loader"
local roots = lazy "moonpool.upstream.roots"
local subscriptions = require "moonpool.registry.subscriptions"

if host.script.is_clustered and not host.script.is_apart then require "moonpool.tasks.shared_tasks" end

local fanout          -- nil: this gateway is alone
if host.script.is_clustered and not host.script.is_apart and host.config.cluster.beat_ms > 0 then
  require "moonpool.cluster.followers"
  require "moonpool.cluster.shared_switches"
  require "moonpool.cluster.definitions"
  fanout = require "moonpool.cluster.fanout"
  fanout.start()
end

for name, method in pairs(host.call.methods) do
  host.call.methods[name] = exact.of("call:" .. name, method, name == "progress" and 3 or nil, 1)
end

local moonpool
moonpool = {
  load = function() return loader.load(function() federated.load() end) end,
  authenticate = function(request) return auth.authenticate(request) end,
  answer_page = function(request) return require("moonpool.sign_in").answer(request) end,
  pack = function(p) return auth.pack(p) end,
  unpack = function(text) return auth.unpack(text) end,
  dispatch = audit.wrap(dispatch.answer),
  record = function(call, params, revision, method)
    return require("moonpool.replay.recorder").answer(moonpool.dispatch, call, params, revision, method)
  end,
  deliver = bus.deliver,
  run_job = function(call, name, ...)
    if host.config.upstreams[1] and name == federated.job then return federated.tick() end
    if fanout and name == fanout.job then return fanout.run(...) end
    if name == "moonpool/sign-ins" then return require("moonpool.sign_in.watch").run() end
    return job.run(call, name, ...)
  end,
  describe = function(form) return require "moonpool.registry.describe" (form) end,
  summary = function() return reload_diff.summary() end,
  difference = function(before, files)
    return reload_diff.compare(before, files, function() return federated.changed_kinds() end)
  end,
}

-- Methods for commands such as `moonpool test`, `job`, `explain`, `add` and `call --url`, whose gateway is started with
-- --specs. No revision has them.
if host.script.has_specs then
  dispatch.special["moonpool/specs"] = function(call, params, row) return require("moonpool.specs").answer(call, params, row) end
  dispatch.special["moonpool/job"] = function(call, params) return job.run_now(call, params.name) end
  dispatch.special["moonpool/upstreams"] = function(_, params) return require("moonpool.federation.upstream_report").answer(params) end
  dispatch.special["moonpool/client"] = function(call, params)
    return require("moonpool.upstream.client").answer(call, params)
  end
  dispatch.special["moonpool/cluster"] = function() return host.config.cluster and require("moonpool.lib.cluster_report").answer() or {} end
  dispatch.special["moonpool/doctor"] = function(_, params) return require("moonpool.federation.doctor").answer(params) end
  dispatch.special["moonpool/explain"] = function(_, params)
    return require("moonpool.registry.explain").answer(params, require "moonpool.federation.explain_upstream")
  end
end

if host.script.is_replay then
  local outside = require "moonpool.replay.outside"
  dispatch.special["moonpool/replay"] = function(call, params, row, eras)
    outside.is_quiet = params.quiet == true
    local player = require "moonpool.replay.player"
    if params.record == nil then return { refused = player.refused(), resultType = "complete" } end
    return player.answer(call, params.record, row, eras)
  end
end

local finish_audited = audit.wrap_finish(dispatch.finish)
dispatch.set_plans(finish_audited)
dispatch.set_routes(finish_audited or dispatch.finish)

-- All workers serve this generation now: notifies clients whose lists differ from the lists of the previous generation.
bus.on("reloaded", function(text)
  for kind, changes in pairs(reload_diff.changes(text)) do subscriptions.reloaded(kind, changes) end
end)

--- Called for each notification from a client, with the id of its session. Only upstreams need to know of one:
--- `initialized` and the other notifications need no action here (G-5).
function moonpool.note(method, _, _, session)
  if method == "notifications/roots/list_changed" and session and host.config.upstreams[1] then roots.changed(session) end
end

return moonpool
