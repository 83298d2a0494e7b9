-- Gauges and counters are declared in the C file that counts them, so that a new one rebuilds that file alone
-- (docs/dev/howto.md).
local sources = require "spec.helpers.sources"

describe("gauges and counters", function()
  it("are declared once, in a file that counts them", function()
    local declared, complaints, count = {}, {}, 0
    sources.each("core", function(path, text)
      if path:find "telemetry/stats%.h$" then return end
      local function complain(format, ...) complaints[#complaints + 1] = path .. ": " .. format:format(...) end
      for family in text:gmatch "\nTURN_COUNTERS%(([%w_]+)" do -- counters of a family, which core/loop/loop.c declares
        if declared[family] then complain("%s is declared twice", family) end
        declared[family] = path
      end
      text = text:gsub('MP_REFUSED%((%s*[%w_]+),', 'MP_COUNTER(%1, "refused", "reason",')
      for _, macro in ipairs { "MP_GAUGE", "MP_COUNTER" } do
        for id, family, label, value in text:gmatch(macro .. '%(([%w_]+),%s*"([%w_]*)",%s*"([%w_]*)",%s*"([%w_]*)"') do
          count = count + 1
          local name = family .. "." .. value
          if declared[name] then complain("%s is declared in %s, too", name, declared[name]) end
          if (label == "") ~= (value == "") then complain("%s has a label or a value, but not both", id) end
          if not path:find "%.c$" then complain("%s is declared in a header", id) end
          if not text:find("mp_stat_" .. id .. "%f[^%w_]") then complain("%s is declared and not counted", id) end
          if declared[family] then complain("%s is declared in %s, too", family, declared[family]) end
          declared[name] = path
        end
      end
    end, "%.[ch]$")
    assert.equal("", table.concat(complaints, "\n"))
    assert.is_true(count > 100 and declared.admin_turns ~= nil)
  end)

  it("are announced to other files by headers alone", function()
    local complaints = {}
    sources.each("core", function(path, text)
      if path:find "%.c$" and text:find "extern const mp_stat mp_stat_" then complaints[#complaints + 1] = path end
    end, "%.[ch]$")
    assert.equal("", table.concat(complaints, "\n"))
  end)

  it("of what is refused say whether it is a limit, and an alert tells of each limit", function()
    local limits, complaints = {}, {}
    sources.each("core", function(path, text)
      for id, family in text:gmatch 'MP_COUNTER%(%s*([%w_]+),%s*"([%w_]*)"' do
        if family == "refused" then complaints[#complaints + 1] = path .. ": " .. id .. " is declared by MP_REFUSED, which says why it refuses" end
      end
      for reason in text:gmatch 'MP_REFUSED%(%s*[%w_]+,%s*"([%w_]+)",%s*MP_LIMIT_REACHED' do limits[#limits + 1] = reason end
    end, "%.[ch]$")
    table.sort(limits)
    assert.equal("", table.concat(complaints, "\n"))
    assert.is_true(#limits > 30)
    local rules <close> = assert(io.open "examples/monitoring/moonpool.rules.yml")
    assert.equal(table.concat(limits, "|"), rules:read "a":match 'refused_total{reason=~"([^"]+)"')
  end)

  -- What is dropped without anything being wrong with the gateway.
  local FINE <const> = {
    admin_codes = "for a newer one", admin_sign_ins = "for a newer one", admin_questions = "its answer says so",
    admin_runs = "a slow reader", answers = "a slow reader", gone = "a reader that left", live = "a slow reader", slow = "a slow reader",
    fanout = "other nodes find the loss, and notify their clients of possible changes",
    listed = "a script lists too much: a line of the log", refusals = "lines of the log that have a sum", repeated = "lines of the log that have a sum",
    redis_messages = "a script is too slow: a line of the log, and the script gets nil",
    postgres_messages = "a script is too slow: a line of the log, and the script gets nil",
    replay = "a client that comes back lists everything again", stderr = "an upstream writes too much", unmatched = "a fault of a client",
    upstream_id = "a fault of an upstream", upstream_noise = "a fault of an upstream", upstream_observed = "an upstream sends too much",
    upstream_pending = "newer progress replaced it, or an upstream sends too much", upstream_questions = "an upstream asks too much",
    upstream_queue = "an upstream sends too much",
  }

  it("of what is dropped are conditions, or there is a reason why nothing is wrong", function()
    local file <close> = assert(io.open "core/admin/conditions.c")
    local known, complaints = {}, {}
    for reasons in file:read "a":gmatch '"dropped", "([^"]+)"' do
      for reason in reasons:gmatch "[^|]+" do known[reason] = true end
    end
    sources.each("core", function(path, text)
      for reason in text:gmatch 'MP_COUNTER%(%s*[%w_]+,%s*"dropped",%s*"reason",%s*"([%w_]+)"' do
        if (known[reason] ~= nil) == (FINE[reason] ~= nil) then complaints[#complaints + 1] = path .. ": " .. reason end
      end
    end, "%.[ch]$")
    assert.equal("", table.concat(complaints, "\n"))
  end)

  -- Events of level warn or error that are no trouble of their own: where else they are seen, or whose fault they are.
  local SEEN <const> = {
    ["audit not written"] = "dropped.audit", ["records not written"] = "dropped.records", ["traces lost"] = "spans",
    ["store full"] = "store_room_refused", ["sessions dropped"] = "kept_sessions_dropped",
    ["store not saved"] = "store_failures", ["job failed"] = "job_runs", ["certificate not renewed"] = "certificate_ok",
    ["certificate"] = "the files are wrong, and `moonpool check` says so",
    ["worker overloaded"] = "refused.overload",
    ["thread stuck"] = "workers_stuck, main_stuck", ["thread recovered"] = "it is mended", ["not reloaded"] = "config_ok",
    ["scripts left out"] = "scripts_left_out",
    ["the last good generation serves"] = "config_ok", ["upstream lists cannot be read"] = "upstream_up",
    ["upstream process ended"] = "upstream_restarts", ["name withheld"] = "upstream_withheld",
    ["call over its limit"] = "tool_aborted", ["cleanup over its limit"] = "cleanups_ended", ["cleanups over their limit"] = "cleanups_ended",
    ["store not saved at shutdown"] = "the end", ["ended by force"] = "the end", ["lua panic"] = "the end",
    ["cannot write to stdout"] = "its one client has left",
    ["database file was replaced"] = "it is mended", ["database wal set aside"] = "it is mended", ["store wal set aside"] = "it is mended",
    ["store file created again"] = "it is mended", ["taken over"] = "it is mended", ["sessions of an older process ended"] = "it is over",
    ["auth disabled, auth scripts ignored"] = "the start", ["auth disabled, listening publicly"] = "the start",
    ["few descriptors"] = "the start",
    ["granted program does not exist"] = "moonpool check", ["policy for no "] = "moonpool check", ["unused grant: no script has this path"] = "moonpool check",
    ["recorded calls fail"] = "an operator asked for no more than a warning", ["no timer for the profile"] = "its answer says so",
    ["scheduled job cancelled"] = "an operator, or a reload", ["address of a client ignored"] = "a peer's fault",
    ["scheme of clients unknown"] = "the configuration lacks public_url, which check says",
    ["name server silent"] = "clients may choose names",
    ["call not recorded"] = "a script's fault", ["<close> handler failed"] = "a script's fault", ["task ended without an answer"] = "a script's fault",
    ["resource list incomplete"] = "a script's fault", ["exec refused"] = "a script's fault", ["fs refused"] = "a script's fault",
    ["http refused"] = "a script's fault", ["sqlite refused"] = "a script's fault", ["redis refused"] = "a script's fault",
    ["redis messages dropped"] = "a script's fault", ["postgres messages dropped"] = "a script's fault",
    ["postgres refused"] = "a script's fault",
    ["store refused"] = "a script's fault", ["sign-in not possible"] = "gauges of the store tell why",
    ["notification of an upstream failed"] = "a script's fault",
  }

  it("tell of each event of the log that says that something does not work, or there is a reason", function()
    local troubles, complaints, events = {}, {}, {}
    local list <close> = assert(io.open "core/telemetry/troubles.def")
    for event in list:read "a":gmatch '\nTROUBLE%([%w_]+, "([^"]+)"%)' do troubles[event] = true end
    sources.each("core", function(path, text)
      for event in text:gmatch 'mp_log%(MP_%u+,%s*"([^"]+)"' do events[event] = events[event] or path end
      for event in text:gmatch 'mp_log%(MP_WARN,%s*"([^"]+)"' do events[event] = path .. " warns" end
      for event in text:gmatch 'mp_log%(MP_ERROR,%s*"([^"]+)"' do events[event] = path .. " warns" end
      for event in text:gmatch 'mp_log%(level[%w_]*%([%w_]+%),%s*"([^"]+)"' do events[event] = path end
    end, "%.[ch]$")
    sources.each("lua", function(path, text)
      for level, event in text:gmatch 'host%.log%.write%("(%l+)", "([^"]+)"' do
        if level == "warn" or level == "error" then events[event] = path .. " warns" end
      end
    end, "%.lua$")
    for event, path in pairs(events) do
      if path:find " warns$" and (troubles[event] == nil) == (SEEN[event] == nil) then complaints[#complaints + 1] = path .. ": " .. event end
    end
    for event in pairs(troubles) do
      if not events[event] then complaints[#complaints + 1] = event .. " is no event" end
    end
    for event in pairs(SEEN) do
      if not events[event] then complaints[#complaints + 1] = event .. " is no event" end
    end
    assert.equal("", table.concat(complaints, "\n"))
  end)
end)
