-- Questions to a provider that is slow or silent (lua/moonpool/sign_in/provider.lua).

-- The module with a provider of its own: `kept.answer(url)` returns what direct.ask does.
local function load()
  local kept = { now = 1000, asked = {}, kept = {} }
  local function answer(_, url)
    kept.asked[#kept.asked + 1] = url:match "[^/]+$"
    return kept.answer(url:match "[^/]+$")
  end
  local stubs = {
    ["moonpool.host"] = {
      config = { sign_in = { provider = "oauth2", authorize_url = "https://idp/authorize", client = "c", secret = "s" } },
      time = { now = function() return kept.now end }, log = { write = function() end },
      http = { url = function(text) return { url = text } end },
      semaphore = { take = function()
        if kept.on_turn then kept.on_turn() end
        return setmetatable({}, { __close = function() end })
      end },
    },
    ["moonpool.sign_in.address"] = { issuer = "https://gateway" },
    ["moonpool.sign_in.presets"] = { text = function() end, of = function()
      return {
        endpoints = function() return { authorize = "https://idp/authorize", token = "https://idp/token", user = "https://idp/user" } end,
        identity = function(ask, at, access)
          local claims, status = ask(at.user.url, at.user.reach, access)
          return claims, status
        end,
      }
    end },
    ["moonpool.lib.http.direct"] = {
      ask = answer, form = function() end, basic = function() return "" end, configured_reach = function() return "public" end,
      outage = function(why) return { kind = "outage", why = why } end,
    },
    ["moonpool.json"] = { null = {}, encode = function() return "" end }, ["moonpool.lib.jwt"] = {}, ["moonpool.keys"] = {}, ["moonpool.sign_in.form"] = {},
    ["moonpool.runtime.single_flight"] = { new = function() return {} end },
  }
  local before = {}
  for name, stub in pairs(stubs) do before[name], package.loaded[name] = package.loaded[name] or false, stub end
  local provider = dofile "lua/moonpool/sign_in/provider.lua"
  for name, old in pairs(before) do package.loaded[name] = old or nil end
  --- What is asked in one more question about ann, and how it ends.
  function kept.ask(ends)
    kept.asked = {}
    local claims, failure = provider.ask_again({ refresh = "r" }, { sub = "1" }, function(tokens) kept.kept[#kept.kept + 1] = tokens.access end, ends)
    return table.concat(kept.asked, " "), claims and "claims" or failure.kind
  end
  return kept
end

local function well(place)
  if place == "token" then return { access_token = "a", token_type = "Bearer" }, 200, "" end
  return { sub = "1" }, 200, ""
end

local function silent() return nil, { kind = "outage", why = "no answer", is_silent = true } end

describe("a provider's place that does not answer", function()
  it("is not asked again for 5 s, or as long as it says", function()
    local kept = load()
    kept.answer = silent
    assert.same({ "token", "outage" }, { kept.ask() })
    assert.same({ "", "outage" }, { kept.ask() })
    kept.now, kept.answer = kept.now + 5, well
    assert.same({ "token user", "claims" }, { kept.ask() })
    function kept.answer() return nil, { kind = "outage", why = "429", retry_after = 30 } end
    kept.ask()
    kept.now = kept.now + 29
    assert.same({ "", "outage" }, { kept.ask() })
    kept.now, kept.answer = kept.now + 1, well
    assert.same({ "token user", "claims" }, { kept.ask() })
  end)

  it("is a place of its own, and an answer with a status is one", function()
    local kept = load()
    function kept.answer(place) if place == "user" then return silent() end return well(place) end
    assert.same({ "token user", "outage" }, { kept.ask() })
    assert.same({ "token", "outage" }, { kept.ask() })
    kept = load()
    function kept.answer() return nil, { kind = "outage", why = "status 500" } end
    for _ = 1, 2 do assert.same({ "token", "outage" }, { kept.ask() }) end
  end)

  it("is not asked by those who have waited for a turn meanwhile", function()
    local kept = load()
    kept.answer = silent
    function kept.on_turn()
      kept.on_turn = nil
      kept.ask()
      kept.asked = {}
    end
    assert.same({ "", "outage" }, { kept.ask() })
  end)
end)

describe("a refresh token of the provider", function()
  it("is not used up by a task that ends before it could keep the next one", function()
    local kept = load()
    kept.answer = well
    assert.same({ "", "outage" }, { kept.ask(kept.now + 5) })
    function kept.on_turn() kept.now = kept.now + 4 end
    assert.same({ "", "outage" }, { kept.ask(kept.now + 9) })
    assert.same({}, kept.kept)
    kept.on_turn = nil
    assert.same({ "token user", "claims" }, { kept.ask(kept.now + 20) })
    assert.same({ "a" }, kept.kept)
  end)
end)
