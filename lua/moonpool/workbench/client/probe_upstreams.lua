-- Connects to upstreams from the command line: a child loads a configuration and asks each of its upstreams once.

local link = require "moonpool.workbench.client.link"
local stderr = require "moonpool.workbench.format.stderr"

local probe_upstreams = {}

local SHOWN <const> = 20           -- lines of tools that are printed where all are too many

-- Removes control characters, because an upstream is not trusted.
local function plain(text) return (tostring(text):match "^[^\n]*":gsub("%c", " ")) end

local function counted(list, hidden, withheld)
  local counts, parts = {}, {}
  for _, thing in ipairs(list) do counts[thing.kind] = (counts[thing.kind] or 0) + 1 end
  for _, kind in ipairs { "tools", "prompts", "resources", "templates" } do
    local n = counts[kind]
    if n then parts[#parts + 1] = n .. " " .. (n == 1 and kind:gsub("s$", "") or kind) end
  end
  if not parts[1] then parts[1] = "nothing that clients see" end
  if hidden > 0 then parts[#parts + 1] = hidden .. " hidden" end
  if withheld > 0 then parts[#parts + 1] = withheld .. " withheld" end
  return table.concat(parts, ", ")
end

local function put_report(name, got, limit)
  local server = got.server and ", " .. plain(got.server) .. (got.version and " " .. plain(got.version) or "") or ""
  print(("%s: %s over %s%s: %s"):format(name, plain(got.revision), plain(got.transport), server, counted(got.shown, got.hidden, got.withheld)))
  for i, thing in ipairs(got.shown) do
    if i > limit then
      print(("  and %d more"):format(#got.shown - limit))
      break
    end
    local line = ("  %s  %s"):format(plain(thing.name), plain(thing.about):sub(1, 100))
    print((line:gsub("%s+$", "")))
  end
  for _, doubt in ipairs(got.doubts) do stderr.note(name .. ": " .. plain(doubt)) end
end

-- A function ask(params, method) that sends a request to the child; see link.asker.
local function requester(child)
  local ask = link.asker(child, "check")
  return function(params, method) return ask(method or "moonpool/upstreams", params) end
end

--- A child with the configuration at `path`; or nil, why.
function probe_upstreams.child(path) return link.child { "--specs", "--log-level", "error", path } end

--- Calls f(ask) with a function that sends a request to the child: ask(params, method) returns a result; or nil, why.
--- Returns what f returns, an exit code; or, if f returns nil and why, the code of a child that has ended.
function probe_upstreams.converse(child, f)
  io.stdout:setvbuf "line"
  local code, problem = f(requester(child))
  if not code then return link.lost(child, problem) end
  child.close()
  return code
end

--- Starts a child with the configuration at `path` and calls f(ask, found): `found` are the facts that the child has
--- about the upstreams. Returns as converse does.
function probe_upstreams.ask(path, f)
  local child, why = probe_upstreams.child(path)
  if not child then return stderr.wrong(why) end
  return probe_upstreams.converse(child, function(ask)
    local found, wrong = ask {}
    if not found then return nil, wrong end
    return f(ask, found)
  end)
end

-- Prints what is found about the server of `cluster`, if there is one. False if it cannot be used, or is doubtful.
local function put_cluster(found)
  local name = "cluster.redis"
  if not found.place then return true end
  if found.what then
    stderr.note(("%s: %s: %s%s"):format(name, found.place, plain(found.what), found.hint and "\n  hint: " .. found.hint or ""))
    return false
  end
  print(("%s: %s at %s"):format(name, plain(found.version or "a server"), found.place))
  for _, doubt in ipairs(found.doubts) do stderr.note(name .. ": " .. plain(doubt)) end
  return #found.doubts == 0
end

--- Asks every upstream of the configuration at `path` and prints the things that clients would see. `is_short`: at most
--- 20 lines of each; `wanted`: only this one. Returns the exit code: 0 if all answered without doubts, 1 if not; and
--- whether all answered.
function probe_upstreams.run(path, is_short, wanted)
  io.stdout:setvbuf "line"
  local child, why = probe_upstreams.child(path)
  if not child then return stderr.wrong(why), false end
  local ask = requester(child)
  local found, wrong = ask {}
  if not found then return link.lost(child, wrong), false end
  local is_fine, has_all, names = true, true, found.names
  if wanted then
    local code = stderr.unknown_upstream(wanted, names)
    if code then
      child.close()
      return code, false
    end
    names = { wanted }
  end
  for _, name in ipairs(names) do
    local got
    got, wrong = ask { name = name }
    if not got then return link.lost(child, name .. ": " .. tostring(wrong)), false end
    if got.what then
      has_all = false
      stderr.note(("%s: %s%s"):format(name, plain(got.what), got.hint and "\n  hint: " .. got.hint or ""))
    elseif got.note then
      print(("%s: %s\n  hint: %s"):format(name, got.note, got.hint))
    else
      put_report(name, got, is_short and SHOWN or math.huge)
      is_fine = is_fine and #got.doubts == 0
    end
  end
  if not wanted then
    local cluster
    cluster, wrong = ask({}, "moonpool/cluster")
    if not cluster then return link.lost(child, wrong), false end
    if not put_cluster(cluster) then has_all = has_all and not cluster.what is_fine = false end
  end
  child.close()
  return has_all and is_fine and 0 or 1, has_all
end

return probe_upstreams