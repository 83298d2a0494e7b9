-- Documents about clients (lua/moonpool/sign_in/documents.lua): which URLs they may have, what they must say, and how often
-- they are fetched. Where connections may lead is for host.http.send, which specs with real sockets try.

local URL <const> = "https://client.example/app.json"

-- The module with a web of its own: `kept.web` = URL -> { status, metadata, headers } or { failure = kind }.
local function load()
  local kept = { web = {}, fetched = {}, now = 1000, tokens = math.huge, of_address = {}, busy = {}, limits = {} }
  function kept.read(found) return found end
  local stubs = {
    ["moonpool.host"] = {
      config = { sign_in = { documents = true } }, time = { now = function() return kept.now end }, log = { write = function() end },
      http = {
        counted = function(address) return address end,
        address = function(name) return name:find "^[%d.]+$" and name or nil end,
        url = function(text)
          local name = text:match "^https://([^/]+)/"
          return name and { url = text, host = name } or nil
        end,
      },
      store = { take = function(key, _, most)
        local address = key:match "of (.*)"
        if address then
          kept.of_address[address] = (kept.of_address[address] or 0) + 1
          return kept.of_address[address] <= most
        end
        kept.tokens = kept.tokens - 1
        return kept.tokens >= 0
      end },
      semaphore = { take = function(name) return not kept.busy[name] and setmetatable({}, { __close = function() end }) or nil end },
    },
    ["moonpool.json"] = { null = {} }, ["moonpool.sign_in.address"] = { host = "mcp.example.com" },
    ["moonpool.runtime.single_flight"] = { new = function() return { share = function(_, _, _, f) return f() end } end },
    ["moonpool.lib.http.direct"] = {
      header_of = function(head, name) return head[name] end,
      ask = function(_, url, reach, _, _, seconds, most)
        kept.fetched[#kept.fetched + 1] = url
        kept.limits = { reach, seconds, most }
        local it = kept.web[url] or { 404, {} }
        if it.failure then return nil, { kind = it.failure, why = "no answer" } end
        local copy = {}
        for key, value in pairs(it[2]) do copy[key] = value end
        return copy, it[1], it[3] or { ["content-type"] = "application/json" }
      end,
    },
  }
  local before = {}
  for name, stub in pairs(stubs) do before[name], package.loaded[name] = package.loaded[name] or false, stub end
  kept.documents = dofile "lua/moonpool/sign_in/documents.lua"
  for name, old in pairs(before) do package.loaded[name] = old or nil end
  local find = kept.documents.find
  function kept.documents.find(id, is_enough, from) return find(id, kept.read, is_enough, from) end
  return kept.documents, kept
end

local function metadata(more)
  local made = { client_id = URL, client_name = "App", redirect_uris = { "https://client.example/back" } }
  for key, value in pairs(more or {}) do made[key] = value or nil end
  return made
end

describe("the document of a client", function()
  it("is fetched from a public address, in 5 s and 5 KiB, and kept for an hour at least", function()
    local documents, kept = load()
    kept.web[URL] = { 200, metadata() }
    local found, host = documents.find(URL)
    assert.same({ "App", "client.example" }, { found.client_name, host })
    assert.same({ "public", 5, 5120 }, kept.limits)
    kept.now = kept.now + 3599
    documents.find(URL)
    assert.equal(1, #kept.fetched)
    kept.now = kept.now + 2
    documents.find(URL)
    assert.equal(2, #kept.fetched)
    kept.web[URL][3] = { ["content-type"] = "application/json", ["cache-control"] = "max-age=99999999" }
    kept.now = kept.now + 3601
    documents.find(URL)
    kept.now = kept.now + 7 * 86400 - 1
    documents.find(URL)
    assert.equal(3, #kept.fetched)
    kept.now = kept.now + 2
    documents.find(URL)
    assert.equal(4, #kept.fetched)
  end)

  it("has a URL with a path, without a port, user, fragment or dots, and none of this gateway", function()
    local documents, kept = load()
    for _, url in ipairs { "https://client.example", "https://client.example/", "https://client.example:443/a", "https://client.example:8443/a",
      "https://user@client.example/a", "https://claude.ai@evil.example/c", "https://client.example/a#b", "https://client.example/../a",
      "https://client.example/a/%2e%2E/b", "https://client.example/a/.", "https://client.example/a%2fb", "https://client.example/a\\b",
      "https://CLIENT.example/a", "https://127.0.0.1/a", "https://[::1]/a", "https://mcp.example.com/a", "https://client.example/a b",
      "https://client.example/" .. ("a"):rep(256) } do
      assert.is_nil((documents.find(url)), url)
    end
    assert.equal(0, #kept.fetched)
  end)

  it("says the same client_id, has a name and no secret, and is JSON with status 200", function()
    local documents, kept = load()
    for _, it in ipairs { { 200, metadata { client_id = URL .. "x" } }, { 200, metadata { client_id = false } }, { 200, metadata { client_name = false } },
      { 200, metadata { client_secret = "x" } }, { 404, {} }, { 410, {} }, { 200, {} } } do
      kept.web[URL] = it
      local found, why, is_away = documents.find(URL)
      assert.same({ nil, "string", false }, { found, type(why), is_away })
      kept.now = kept.now + 11
    end
  end)

  it("is not kept where it cannot be used, and only what is read out of it is kept", function()
    local documents, kept = load()
    function kept.read(found) if found.wide then return nil, "too wide" end return { name = found.client_name } end
    kept.web[URL] = { 200, metadata { x = { {}, {} } } }
    assert.same({ name = "App" }, (documents.find(URL)))
    local wide = URL .. "2"
    kept.web[wide] = { 200, metadata { client_id = wide, wide = true } }
    for _ = 1, 2 do assert.same({ nil, "too wide", false }, { documents.find(wide) }) end
    assert.equal(2, #kept.fetched)
  end)

  it("is gone by nothing but 404, 410 or JSON that says so, and not before its time", function()
    for _, it in ipairs { { 200, metadata(), { ["content-type"] = "text/html" } }, { 200, metadata(), {} }, { 403, {} }, { failure = "barred" } } do
      local documents, kept = load()
      kept.web[URL] = it
      assert.same({ nil, true }, { documents.find(URL), (select(3, documents.find(URL))) })
      kept.now, kept.web[URL] = kept.now + 11, { 200, metadata() }
      documents.find(URL)
      kept.now, kept.web[URL] = kept.now + 3601, it
      assert.truthy((documents.find(URL)))
    end
    local documents, kept = load()
    kept.web[URL] = { 200, metadata() }
    documents.find(URL)
    kept.now, kept.web[URL] = kept.now + 11, { 404, {} }
    assert.truthy((documents.find(URL, function() return false end)))
    assert.truthy((documents.find(URL)))
    assert.equal(2, #kept.fetched)
    kept.now = kept.now + 3601
    assert.is_nil((documents.find(URL)))
  end)

  it("that cannot be had is not asked for again at once, and the last one serves for a day", function()
    local documents, kept = load()
    kept.web[URL] = { failure = "outage" }
    for _ = 1, 3 do assert.same({ nil, "no answer", true }, { documents.find(URL) }) end
    assert.equal(1, #kept.fetched)
    kept.now, kept.web[URL] = kept.now + 11, { 200, metadata() }
    assert.truthy((documents.find(URL)))
    kept.now, kept.web[URL] = kept.now + 3601, { failure = "outage" }
    assert.truthy((documents.find(URL)))
    kept.now = kept.now + 86400
    assert.is_nil((documents.find(URL)))
    kept.now, kept.web[URL] = kept.now + 11, { 200, metadata() }
    assert.truthy((documents.find(URL)))
    kept.now, kept.web[URL] = kept.now + 3601, { 410, {} }
    assert.is_nil((documents.find(URL)))
  end)

  it("is fetched again where it does not have what a request needs", function()
    local documents, kept = load()
    kept.web[URL] = { 200, metadata() }
    documents.find(URL)
    local function wants_more(its) return #its.redirect_uris == 2 end
    kept.web[URL] = { 200, metadata { redirect_uris = { "https://client.example/back", "https://client.example/two" } } }
    assert.equal(1, #documents.find(URL, wants_more).redirect_uris)
    kept.now = kept.now + 11
    assert.equal(2, #documents.find(URL, wants_more).redirect_uris)
    assert.equal(2, #kept.fetched)
  end)

  it("is fetched from one host at a rate", function()
    local documents, kept = load()
    kept.tokens = 3
    for i = 1, 10 do documents.find("https://client.example/" .. i) end
    assert.equal(3, #kept.fetched)
  end)

  it("that is not known is fetched at a rate of the address that asks for it, which takes nothing from others", function()
    local documents, kept = load()
    kept.web[URL] = { 200, metadata() }
    for i = 1, 20 do documents.find("https://client.example/" .. i, nil, "10.0.0.1") end
    assert.equal(10, #kept.fetched)
    assert.same({ nil, true }, { documents.find(URL, nil, "10.0.0.1"), select(3, documents.find(URL, nil, "10.0.0.1")) })
    assert.truthy((documents.find(URL, nil, "10.0.0.2")))
    kept.now = kept.now + 3601
    assert.truthy((documents.find(URL, nil, "10.0.0.1")))          -- it is known
    assert.equal(12, #kept.fetched)
    kept.busy["sign_in documents of 10.0.0.3"] = true
    assert.is_nil((documents.find("https://client.example/other", nil, "10.0.0.3")))
    assert.equal(12, #kept.fetched)
  end)
end)

-- The module of clients, with documents of which `find` says something.
local function clients_with(find)
  local stubs = { ["moonpool.sign_in.documents"] = { is_url = function() return true end, find = find } }
  for _, name in ipairs { "runtime.characters", "keys", "sign_in.form", "sign_in.sealed" } do
    stubs["moonpool." .. name] = {}
  end
  stubs["moonpool.runtime.characters"].hidden = function() return false end
  stubs["moonpool.sign_in.records"] = { hash = function(text) return text end }
  stubs["moonpool.sign_in.redirects"] = { may_register = function(uri) return uri:find "^https" ~= nil end, fits = function() return true end }
  local before = {}
  for name, stub in pairs(stubs) do before[name], package.loaded[name] = package.loaded[name] or false, stub end
  local clients = dofile "lua/moonpool/sign_in/clients.lua"
  for name, old in pairs(before) do package.loaded[name] = old or nil end
  return clients
end

describe("a client with a document", function()
  it("redeems and refreshes while its document cannot be had, and not once it is gone", function()
    local is_away = true
    local clients = clients_with(function() return nil, "no answer", is_away end)
    local request = { headers = {}, address = "10.0.0.1" }
    assert.same({ id = URL, key = URL, method = "none" }, (clients.authenticate(request, { client_id = URL })))
    assert.is_nil((clients.authenticate(request, { client_id = URL, client_secret = "x" })))
    is_away = false
    assert.is_nil((clients.authenticate(request, { client_id = URL })))
  end)

  it("is what its document says, of which little is kept", function()
    local found
    local clients = clients_with(function(_, read)
      local value, why = read(found)
      return value, value and "client.example" or why, false
    end)
    found = metadata { grant_types = { "authorization_code", "refresh_token" }, x = { {}, {} } }
    local client = clients.find(URL)
    assert.same({ "App", "client.example", true, URL, found.redirect_uris }, { client.name, client.host, client.refreshes, client.key, client.redirects })
    assert.is_nil(client.x)
    for _, more in ipairs { { redirect_uris = { "http://a" } }, { grant_types = { "implicit" } }, { token_endpoint_auth_method = "client_secret_basic" } } do
      found = metadata(more)
      assert.is_nil((clients.find(URL)))
    end
  end)
end)
