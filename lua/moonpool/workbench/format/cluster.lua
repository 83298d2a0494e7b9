-- moonpool cluster: the nodes of a running gateway's cluster; drains one, or removes its records.

local characters = require "moonpool.runtime.characters"
local json = require "moonpool.json"
local put_table = require "moonpool.workbench.format.table"
local stderr = require "moonpool.workbench.format.stderr"

local cluster = {}

--- The method, path and body of the request for the words of the command; nil, an error text and a hint if the words
--- are wrong.
function cluster.request(given)
  local word, node = given:match "^([^\n]*)\n?(.*)$"
  if word == "status" and node == "" then return { "GET", "/status" } end
  if word == "drain" or word == "forget" then
    if node ~= "" then return { "POST", "/api/cluster/" .. word }, json.encode { node = node } end
    return nil, word .. " needs the name of a node", "`moonpool cluster status` names them"
  end
  return nil, "cluster needs status, or drain or forget and a node", "as in moonpool cluster status"
end

local function row_of(one)
  local age = ("%.1f s"):format((one.age_ms or 0) / 1000)
  local state = one.state .. (one.unreached and ", not reached" or "")
  return { one.node .. (one.own and " *" or ""), one.address, one.version, state, ("%d"):format(one.sessions or 0), age, one.scripts }
end

--- Prints the answer of the gateway. The exit code.
function cluster.print(body, args)
  local answer = json.decode(body)
  if answer.removed then
    io.stdout:write(args.json and body or ("%d of its records removed\n"):format(answer.removed))
    return 0
  end
  if answer.drained then
    io.stdout:write(args.json and body or "it leaves within 2 s: `moonpool cluster status` shows that\n")
    return 0
  end
  local state = answer.cluster
  if not state then return stderr.wrong("the gateway has no cluster", "see docs/how-to/several-nodes.md") end
  local rows, scripts, configs, is_fine = { { "node", "address", "version", "state", "sessions", "renewed", "scripts" } }, {}, {}, state.joined
  table.sort(state.nodes, function(a, b) return a.node == b.node and a.number < b.number or a.node < b.node end)
  for _, one in ipairs(state.nodes) do
    rows[#rows + 1] = row_of(one)
    configs[#configs + 1] = one.config ~= (state.nodes[1] or one).config and one.node or nil
    scripts[#scripts + 1] = one.scripts ~= (state.nodes[1] or one).scripts and one.node or nil
    is_fine = is_fine and one.state ~= "stale"
  end
  if args.json then
    io.stdout:write(json.encode(state), "\n")
    return is_fine and 0 or 1
  end
  if not state.joined then io.stdout:write(state.node, " has not joined", state.why and ": " .. characters.shown(state.why) or "", "\n") end
  if state.away_ms then io.stdout:write(("the server of cluster has not answered for %.0f s\n"):format(state.away_ms / 1000)) end
  if scripts[1] then io.stdout:write "nodes serve different scripts\n" end
  if configs[1] then io.stdout:write "nodes have different configurations\n" end
  io.stdout:write(rows[2] and put_table(rows) or "no node has a record\n")
  return is_fine and 0 or 1
end

return cluster
