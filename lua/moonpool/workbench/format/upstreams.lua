-- moonpool upstreams: the upstreams of a running gateway, from the JSON of /status.

local characters = require "moonpool.runtime.characters"
local json = require "moonpool.json"
local stderr = require "moonpool.workbench.format.stderr"
local sorted = require "moonpool.runtime.sorted_keys"

local function span(us)
  if us < 1000 then return us .. " us" end
  if us < 10000 then return ("%.1f ms"):format(us / 1000) end
  if us < 1000000 then return ("%d ms"):format(us // 1000) end
  return ("%.1f s"):format(us / 1000000)
end

local function plural(n, word) return ("%d %s%s"):format(n, word, n == 1 and "" or word:find "s$" and "es" or "s") end

-- Removes control characters, because an upstream may have chosen the text.
local function plain(text) return (text:gsub("%c", " ")) end

-- The channels by what their clients can be asked, where any can be asked something: " (1 none, 2 form+roots)".
local function classes_of(one)
  local parts = {}
  for i, name in ipairs(sorted(one.classes or {})) do parts[i] = one.classes[name] .. " " .. plain(name) end
  return (parts[2] or parts[1] and not one.classes.none) and " (" .. table.concat(parts, ", ") .. ")" or ""
end

-- The cells of one line, and the rest of it, which has no column.
local function row_of(name, one)
  local held = one.processes and plural(one.processes, "process") or plural(one.channels, "channel")
  if one.pids and one.pids[1] then held = held .. (" (pid %s)"):format(table.concat(one.pids, ", ")) end
  held = held .. classes_of(one)
  if (one.memory_bytes or 0) > 0 then held = ("%s, %d MiB"):format(held, (one.memory_bytes + (1 << 19)) >> 20) end
  local rest, served = {}, one.served
  if served then
    local counts = {}
    for _, kind in ipairs { "tools", "prompts", "resources" } do
      if (served[kind] or 0) > 0 then counts[#counts + 1] = plural(served[kind], (kind:gsub("s$", ""))) end
    end
    if (served.hidden or 0) > 0 then counts[#counts + 1] = served.hidden .. " hidden" end
    if (served.withheld or 0) > 0 then counts[#counts + 1] = served.withheld .. " withheld" end
    rest[1] = counts[1] and table.concat(counts, ", ") or nil
  end
  if (one.retry_ms or 0) > 0 then rest[#rest + 1] = ("next try in %d s"):format((one.retry_ms + 999) // 1000) end
  if one.circuit and one.circuit ~= "closed" then rest[#rest + 1] = "circuit " .. one.circuit end
  if (one.failures_in_row or 0) > 0 then rest[#rest + 1] = plural(one.failures_in_row, "failure") .. " in a row" end
  if one.calls > 0 then rest[#rest + 1] = plural(one.calls, "request") end
  if one.errors > 0 then rest[#rest + 1] = one.errors .. " failed" end
  if one.p50_us > 0 then rest[#rest + 1] = "p50 " .. span(one.p50_us) .. ", p99 " .. span(one.p99_us) end
  if (one.restarts or 0) > 0 then rest[#rest + 1] = plural(one.restarts, "restart") end
  if one.error then rest[#rest + 1] = ("last failure at %s: %s"):format(one.error_at, plain(one.error)) end
  return { name, one.state, plain(one.revision or "-"), one.transport, held }, table.concat(rest, "; ")
end

local function put_rows(names, all)
  local rows, rests, widths = {}, {}, {}
  for i, name in ipairs(names) do
    rows[i], rests[i] = row_of(name, all[name])
    for column, cell in ipairs(rows[i]) do widths[column] = math.max(widths[column] or 0, #cell) end
  end
  for i, row in ipairs(rows) do
    for column, cell in ipairs(row) do row[column] = cell .. (" "):rep(widths[column] - #cell) end
    io.stdout:write((table.concat(row, "  ") .. "  " .. rests[i]):gsub("%s+$", ""), "\n")
  end
end

-- The definitions that clients do not get, and why.
local function put_withheld(names, all)
  for _, name in ipairs(names) do
    for _, one in ipairs(all[name].withheld or {}) do
      print(("  withheld: %s %s %s: %s: %s"):format(name, one.kind, characters.shown(one.name), characters.shown(one.why), one.hint))
    end
    local doubts = #(all[name].doubts or {})
    if doubts > 0 then print(("  %s in the definitions of %s: moonpool check --connect shows them"):format(plural(doubts, "doubt"), name)) end
  end
end

--- Prints the upstreams in `body`, the JSON of /status, as the options say. Returns the exit code.
return function(body, args)
  local status = json.decode(body)
  local all = type(status) == "table" and status.upstreams
  if type(all) ~= "table" then return stderr.wrong("the gateway does not report its upstreams", "it is of an earlier version: restart it") end
  local names, wanted = sorted(all), args.upstream
  local code = wanted and stderr.unknown_upstream(wanted, names)
  if code then return code end
  if wanted then names = { wanted } end
  local is_up = true
  for _, name in ipairs(names) do is_up = is_up and all[name].state ~= "down" and all[name].state ~= "barred" end
  if args.json then
    io.stdout:write(json.encode(wanted and all[wanted] or json.object(all)), "\n")
  elseif not names[1] then
    print "the gateway has no upstreams"
  else
    put_rows(names, all)
    put_withheld(names, all)
  end
  return is_up and 0 or 1
end
