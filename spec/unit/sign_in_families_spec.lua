-- Families of sign-ins (lua/moonpool/sign_in/families.lua): how they end, and how many a person has.

-- The module on records of its own. `kept.most`: the number of records for which there is room.
local function load()
  local kept, number = { found = {}, noted = {}, most = math.huge }, 0
  local function count()
    local n = 0
    for _ in pairs(kept.found) do n = n + 1 end
    return n
  end
  local records = { hash = function(text) return text end, settle = function() end }
  function records.get(kind, id)
    local it = kept.found[kind .. ":" .. id]
    if it then return it.value, it end
  end
  function records.is_there(kind, id) return kept.found[kind .. ":" .. id] ~= nil end
  function records.put(kind, id, value, seconds)
    local key = kind .. ":" .. id
    if not kept.found[key] and count() >= kept.most then error({ sign_in_unavailable = "full" }, 0) end
    kept.found[key] = { value = value, seconds = seconds }
  end
  function records.add(kind, id, value, seconds)
    if kept.found[kind .. ":" .. id] then return false end
    records.put(kind, id, value, seconds)
    return true
  end
  function records.replace(kind, id, text, value, seconds)
    if kept.found[kind .. ":" .. id] ~= text then return false end
    records.put(kind, id, value, seconds)
    return true
  end
  function records.drop(kind, id) kept.found[kind .. ":" .. id] = nil end
  local stubs = {
    ["moonpool.host"] = { config = { sign_in = { access = 60, refresh = 86400, idle = 3600, grace = 60 } } },
    ["moonpool.keys"] = { base64url = function(text) return text end, random = function()
      number = number + 1
      return "r" .. number
    end },
    ["moonpool.sign_in.ended"] = { SECONDS = 86460, note = function(id) kept.noted[id] = true end },
    ["moonpool.sign_in.records"] = records, ["moonpool.sign_in.sealed"] = { make = function(_, value) return value end,
      open = function(_, value) return value end },
  }
  local before = {}
  for name, stub in pairs(stubs) do before[name], package.loaded[name] = package.loaded[name] or false, stub end
  function kept.has_ended(id) return kept.noted[id] == true and kept.found["ended:" .. id] ~= nil end
  kept.families = dofile "lua/moonpool/sign_in/families.lua"
  for name, old in pairs(before) do package.loaded[name] = old or nil end
  return kept.families, kept
end

-- Signs the user in with the client: what families.begin returns.
local function begin(families, user, client)
  local code = families.code { client = client, user = user, scopes = {}, refreshes = true }
  local grant, text = families.find_code(code)
  local id, family, token, is_one_gone = families.begin(code, grant, text)
  families.drop_code(code)
  return id, family, token, is_one_gone
end

describe("the end of a sign-in", function()
  it("finds a place in a full store, and outlives every access token that the configuration ever allowed", function()
    local families, kept = load()
    local id = begin(families, "ann", "c")
    kept.most = 0
    for _ in pairs(kept.found) do kept.most = kept.most + 1 end
    families.finish(id)
    assert.is_true(kept.has_ended(id))
    assert.is_true(kept.found["ended:" .. id].seconds > 86400)
    assert.is_nil(kept.found["family:" .. id])
  end)

  it("counts in this process also where the store takes no ending", function()
    local families, kept = load()
    local id = begin(families, "ann", "c")
    kept.found["family:" .. id], kept.most = nil, 0
    assert.has_error(function() families.finish(id) end)
    assert.is_true(kept.noted[id])
  end)
end)

describe("a person", function()
  it("has a number of sign-ins with a client and in all; the one that was unused longest gives way", function()
    local families, kept = load()
    local ids = {}
    for i = 1, 16 do
      local id, _, _, is_one_gone = begin(families, "ann", "c1")
      assert.is_false(is_one_gone)
      ids[i] = id
      kept.found["family:" .. id].value.used = 100 + i
    end
    kept.found["family:" .. ids[1]].value.used = 1000
    assert.is_true(select(4, begin(families, "ann", "c1")))
    assert.same({ false, true, false }, { kept.has_ended(ids[1]), kept.has_ended(ids[2]), kept.has_ended(ids[3]) })
    for client = 2, 4 do
      for _ = 1, 16 do assert.is_false((select(4, begin(families, "ann", "c" .. client)))) end
    end
    assert.is_true((select(4, begin(families, "ann", "c5"))))
    assert.is_true(kept.has_ended(ids[3]))
    assert.is_false((select(4, begin(families, "bob", "c1"))))
    assert.is_false(kept.has_ended(ids[4]))
  end)
end)
