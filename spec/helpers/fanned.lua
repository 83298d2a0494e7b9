-- Nodes of a cluster that publish to each other's clients, and clients that are notified.
--   local both <close> = fanned.start(server, 2)
local assert = require "luassert"
local at_rest = require "spec.helpers.at_rest"
local code = require "spec.helpers.code"
local nodes = require "spec.helpers.nodes"
local wait = require "spec.helpers.wait"

local steady <const> = at_rest { outgoing_descriptors = true }

local fanned = {}

fanned.LISTS = { "prompts", "resources", "tools" }

fanned.scripts = {
  ["resources/note.lua"] = 'return resource { "A note.", uri = "note://one", "text" }',
  ["resources/notes.lua"] = 'return resource { "Notes.", uri = "notes://{id}", function(vars) return vars.id end }',
  ["prompts/hello.lua"] = 'return prompt { "Hello.", "hello" }',
}

local function copied(from)
  local made = {}
  for key, value in pairs(from) do made[key] = value end
  return made
end

--- Waits until `count` nodes listen at the server.
function fanned.wait_listeners(server, count)
  wait.for_fact(count .. " nodes to listen", 20, function()
    return server:cli("PUBSUB", "NUMSUB", "mp:spec:f"):match "%d+$" == tostring(count)
  end)
end

--- Waits until clients have left nothing in a node: it keeps its connections to the server, one more for each worker that
--- has published.
function fanned.wait_rest(g)
  local left
  wait.for_fact(function() return "nothing to be left of clients, but " .. left end, 20, function()
    local status = g:status()
    left = at_rest.left(status.gauges, steady)
    local fds = g:fds() - g.baseline_fds - status.gauges.redis_connections + 2
    if fds > 1 then left = fds .. " descriptors" end
    return not left
  end)
end

--- Options of nodes.start for a node of these specs.
function fanned.options(more)
  local options = copied(more or {})
  options.scripts = copied(options.scripts or fanned.scripts)
  options.constants = copied(options.constants or {})
  options.constants.fanout_ms, options.constants.redis_idle_ms = 500, 60000
  return options
end

--- A node at `at`; see fanned.settle.
function fanned.node(at, more) return nodes.start(at, fanned.options(more)) end

--- Waits until `count` nodes listen, of which some have reloaded their scripts just now: for a moment they do not.
function fanned.wait_reloaded(server, count)
  wait.quietly(0.6)
  fanned.wait_listeners(server, count)
end

--- Waits until a node has opened its connections: they stay.
function fanned.settle(g)
  wait.for_fact("the connections of a node", 20, function() return g:status().gauges.redis_connections >= 2 end)
  g.baseline_fds = g:fds()
end

--- A list whose gateways end with the block.
function fanned.closing(all)
  return setmetatable(all, { __close = function() for _, g in ipairs(all) do g:__close() end end })
end

--- `count` nodes, which all listen: a list for <close>.
function fanned.start(server, count, more)
  local all = fanned.closing {}
  for i = 1, count do all[i] = fanned.node(server.at, more) end
  fanned.wait_listeners(server, count)
  for _, g in ipairs(all) do fanned.settle(g) end
  return all
end

--- A session of 2025-11-25 that follows note://one, and the lists. `options`: of g:client.
function fanned.session(g, options)
  local c = g:client("2025-11-25", options)
  c.own = c:get_stream().connection
  c.own:read_head()
  assert.same({}, c:call("resources/subscribe", { uri = "note://one" }).result)
  return c
end

--- A client of 2026-07-28 that listens to the same.
function fanned.listener(g, options)
  local c = g:client("2026-07-28", options)
  c.own = c:open("subscriptions/listen", { notifications = {
    toolsListChanged = true, promptsListChanged = true, resourcesListChanged = true, resourceSubscriptions = { "note://one" },
  } }):wait "notifications/subscriptions/acknowledged"
  return c
end

--- What a client was notified of, sorted: "note://one", "prompts", "resources", "tools".
function fanned.told(c)
  local list = {}
  for _, message in ipairs(c.own:messages()) do
    local method = message.method or ""
    if method == "notifications/resources/updated" then list[#list + 1] = message.params.uri end
    list[#list + 1] = method:match "^notifications/(%a+)/list_changed$"
  end
  table.sort(list)
  return list
end

--- How often a client was notified of something.
function fanned.count(c, what)
  local count = 0
  for _, one in ipairs(fanned.told(c)) do count = count + (one == what and 1 or 0) end
  return count
end

--- Waits until each client was notified of `what` as often.
function fanned.wait_count(clients, what, count)
  for i, c in ipairs(clients) do
    wait.for_fact(("%s no. %d at client %d"):format(what, count, i), 20, function() return fanned.count(c, what) >= count end)
  end
end

--- A script of the node updates a resource.
function fanned.update(c, uri) assert.is_true(code.run(c, ("resource_updated(%q) return true"):format(uri or "note://one"))) end

--- Updates note://one at the node of each client, and waits until all clients were notified: what was sent to them before
--- that has come by then.
function fanned.fence(clients)
  local before = fanned.count(clients[1], "note://one")
  for i, c in ipairs(clients) do
    fanned.update(c)
    fanned.wait_count(clients, "note://one", before + i)
  end
end

--- The list of fanned.told() with note://one `count` times, and then `more`.
function fanned.notes(count, more)
  local list = {}
  for i = 1, count do list[i] = "note://one" end
  return table.move(more or {}, 1, #(more or {}), count + 1, list)
end

--- The lines of the log about losses and connections, for messages of failures.
function fanned.losses(...)
  local list = {}
  for i, g in ipairs { ... } do
    for line in g:log():gmatch "[^\n]+" do
      if line:find "lost" or line:find "redis" or line:find "subscription" or line:find "reloaded" then list[#list + 1] = i .. ": " .. line end
    end
  end
  return table.concat(list, "\n")
end

function fanned.gaps(g) return g:status().counters.fanout_gaps end

function fanned.close(...)
  for _, c in ipairs { ... } do
    if c.delete then c:delete() end
    c:close()
  end
end

return fanned
