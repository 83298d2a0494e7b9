-- The store's rooms go by the prefixes of keys, and core/data/store_rooms.c has the one list of them. A key of the
-- gateway with another prefix would be in the room of scripts, which scripts fill.
local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local listed = {}
for prefix in read "core/data/store_rooms.c":gmatch '\n    PREFIX%("([^"]+)"' do listed[#listed + 1] = prefix end

local writes = { "set", "add", "incr", "take", "cas", "post" }

-- Parts of keys that look like prefixes of their own.
local parts = {
  ["lua/moonpool/cluster/fanout.lua"] = { ["mp:"] = true }, ["lua/moonpool/cluster/shared_switches.lua"] = { ["mp:"] = true },
  ["lua/moonpool/upstream/auth/init.lua"] = { ["caller:"] = true },
  -- keys in the server of a cluster
  ["lua/moonpool/lib/cluster_jobs.lua"] = { ["j:"] = true }, ["lua/moonpool/lib/cluster_nodes.lua"] = { ["mp:"] = true },
  ["lua/moonpool/upstream/lists.lua"] = { ["http://json-schema.org/draft-07/schema#"] = true },
}

-- Files whose keys other files make: registry.lua, lib/store.lua and session/state.h have their prefixes.
local by_others = {
  ["core/rpc/session/kept.c"] = true, ["lua/moonpool/registry/switches.lua"] = true, ["lua/moonpool/lib/store_lock.lua"] = true,
  ["lua/moonpool/replay/outside.lua"] = true,
}

local function is_listed(key)
  for _, prefix in ipairs(listed) do
    if key:sub(1, #prefix) == prefix then return true end
  end
  return false
end

local function writes_store(text)
  for _, word in ipairs(writes) do
    if text:find("host.store." .. word .. "(", 1, true) then return true end
  end
  return text:find("OFF_KEYS", 1, true) ~= nil or text:find("MP_STORE_SET", 1, true) ~= nil
end

-- The literals of a file that a key can begin with: words and a colon, not joined to something before them.
local function heads(text)
  local list = {}
  for before, literal, after in text:gmatch '([^\n"]*)"([a-z][a-z ]*:[^" ]*)(["%s])' do
    local is_key = after == '"' or literal:find ":.*:" or literal:find ":%%"
    if is_key and not before:find "%.%.%s*$" and not before:find "%-%-" then list[#list + 1] = literal end
  end
  return list
end

describe("a rate of the store that could not be counted", function()
  it("is nowhere taken for a call that may go on: only `true` is", function()
    local wrong = {}
    for path in io.popen "git ls-files lua/moonpool":lines() do
      for line in (path:find "%.lua$" and read(path) or ""):gmatch "[^\n]+" do
        if line:find "host%.store%.take%(" and line:find "~= false" then wrong[#wrong + 1] = path .. ": " .. line end
      end
    end
    assert.same({}, wrong)
  end)
end)

-- Calls that wait for another process while that owns the store, and why they may. Elsewhere a task waits (mp_store_begin),
-- the change waits in a queue (mp_store_post), or only the store of this process is asked (mp_store_run).
local waiting = {
  ["core/rpc/session/revive.c"] = "before any loop runs",
  ["core/lib/store.c"] = "while scripts load, in functions that C calls, and in <close> of a call that was cancelled",
  ["core/data/semaphore.c"] = "a thread of its own, without its lock",
}

describe("a store that another process may own", function()
  it("is asked by no loop that would wait, and under no lock", function()
    local wrong = {}
    for path in io.popen "git ls-files core":lines() do
      local text = path:find "%.c$" and not path:find "^core/data/store" and read(path) or ""
      for word in text:gmatch "%f[%w_]mp_store_(%l+)%(" do
        if ("set get delete keys incr take place cas do "):find(word .. " ", 1, true) and not waiting[path] then
          wrong[#wrong + 1] = path .. ": mp_store_" .. word
        end
      end
    end
    assert.same({}, wrong)
  end)
end)

describe("the list of the prefixes of keys in the store", function()
  it("has those of each file that writes to the store", function()
    local missing, count = {}, 0
    for path in io.popen "git ls-files lua/moonpool core/lib core/data core/gateway core/rpc":lines() do
      local text = path:find "%.lua$" and read(path) or path:find "^core/.*%.c$" and read(path) or ""
      local is_other = path:find "^core/data/store" or path == "core/lib/store.c" or path:find "^lua/moonpool/specs/"
      if not is_other and writes_store(text) then
        local found = heads(text)
        count = count + 1
        if not found[1] and not by_others[path] then missing[#missing + 1] = path .. ": no prefix of a key is found" end
        for _, key in ipairs(found) do
          if not is_listed(key) and not (parts[path] or {})[key] then missing[#missing + 1] = path .. ": " .. key end
        end
      end
    end
    assert.same({}, missing)
    assert.is_true(count >= 15 and #listed >= 10)
  end)
end)
