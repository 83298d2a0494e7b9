-- moonpool switch: what operators have switched off in a running gateway, and its change.

local json = require "moonpool.json"

local switch = {}

local words = { on = true, off = true }
local kinds = { tool = true, prompt = true, resource = true, upstream = true }

--- The method, path and body of the request for the words of the command; nil, an error text and a hint if the words
--- are wrong.
function switch.request(given)
  local to, kind, name = given:match "^([^\n]*)\n([^\n]*)\n(.*)$"
  if given == "" then return { "GET", "/api/switch" } end
  if not to or name == "" then return nil, "switch needs on or off, a kind and a name", "as in moonpool switch off tool refund" end
  if not words[to] then return nil, "'" .. to .. "' is neither on nor off", "as in moonpool switch off tool refund" end
  if not kinds[kind] then return nil, "'" .. kind .. "' is no kind", "the kinds are tool, prompt, resource and upstream" end
  return { "POST", "/api/switch" }, json.encode { [kind] = name, on = to == "on" }
end

-- Removes control characters, because an upstream may have chosen the text.
local function plain(text) return (text:gsub("%c", " ")) end

local function row_of(one)
  local since = one.since and os.date("!since %Y-%m-%dT%H:%M:%SZ ", one.since) or ""
  return ("%-8s  %s  off %sby %s%s\n"):format(one.kind, plain(one.name), since, plain(one.by), one.gone and " (nothing has this name now)" or "")
end

--- A text for older processes that have not carried out a request; nil if all have. `then_what`: the consequence.
function switch.absence(body, then_what)
  local ok, answer = pcall(json.decode, body)
  local pids = ok and type(answer) == "table" and answer.pids_without_answer
  if type(pids) ~= "table" or not pids[1] then return nil end
  local list = table.concat(pids, ", ")
  return ("%s not answer (pid %s): %s"):format(#pids == 1 and "an older process does" or #pids .. " older processes do", list, then_what),
    "see `moonpool status`, and try again"
end

-- The same for the other nodes of a cluster whose server does not answer.
local function not_reached(nodes)
  local count = 0
  for _, one in ipairs(nodes) do count = count + (one.is_taken and 0 or 1) end
  if nodes[1] and count == 0 then return nil end
  local who = nodes[1] and ("%d of %d other nodes"):format(count, #nodes) or "the other nodes"
  return ("the server of `cluster` does not answer: %s switch when it is back"):format(who), "to switch at once, name each node's admin listener by --admin"
end

--- A text for workers, processes or nodes that have not switched yet; nil if all have.
function switch.lateness(body)
  local answer = json.decode(body)
  local late = answer.workers_without_answer or 0
  local away, see = switch.absence(body, "calls may still run there until it goes on")
  if away then return away, see end
  if late == 0 and answer.nodes then return not_reached(answer.nodes) end
  if late == 0 then return nil end
  return late .. (late == 1 and " worker has" or " workers have") .. " not switched yet: calls may still run there", "see stuck in `moonpool status`"
end

--- The answer of the gateway, as text.
function switch.text(body)
  local answer = json.decode(body)
  if answer.switches then
    local rows = {}
    for i, one in ipairs(answer.switches) do rows[i] = row_of(one) end
    return rows[1] and table.concat(rows) or "nothing is switched off\n"
  end
  local what = answer.kind .. " " .. plain(answer.name) .. " is " .. (answer.on and "on" or "off")
  for _, one in ipairs(answer.nodes or {}) do
    what = ("%s\nnode %s: %s"):format(what, plain(one.node), one.is_taken and (answer.on and "on" or "off") or "not switched, at " .. plain(one.address))
  end
  if answer.on or answer.lasts == "store" then return what .. "\n" end
  return what .. ", until the gateway ends: store.file in the configuration would keep it\n"
end

return switch
