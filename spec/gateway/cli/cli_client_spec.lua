-- The command line as an MCP client: read, prompt, complete, job, list --url, answers to questions, -c everywhere, and
-- Ctrl-C.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/sure.lua"] = [[return tool { "Asks.", function(_, call)
    local yes, why = call:elicit("sure", "Really?", { confirm = t.boolean })
    if not yes then return nil, why end
    local who = call:elicit("who", "Who?", { name = t.string })
    return tostring(yes.confirm) .. " " .. (who and who.name or "nobody") end }]],
  ["tools/slow.lua"] = [[return tool { "Slow.", timeout = 60, function(_, call)
    local over <close> = closing(function() log.info("slow is over", { cancelled = tostring(call.cancelled) }) end)
    log.info "slow begins"
    call:progress(1)
    sleep(50)
    return "late" end }]],
  ["resources/order.lua"] = [[return resource { "An order.", uri = "orders://{id}", complete = { id = { "17", "18", "2" } },
    function(vars) if vars.id ~= "0" then return "order " .. vars.id end end }]],
  ["resources/image.lua"] = [[return resource { "An image.", uri = "images://one", mime = "image/png", function() return bytes("\0\1\2\255\254") end }]],
  ["prompts/review.lua"] = [[return prompt { "Review.", args = { diff = t.string, tone = t.string { default = "kind", complete = { "kind", "brief" } } },
    function(args) return { user("Review " .. args.diff), assistant("In a " .. args.tone .. " way") } end }]],
  ["jobs/sweep.lua"] = [[return job { "Sweeps.", every = 1 * hours, function() return { swept = 3 } end }]],
  ["jobs/broken.lua"] = [[return job { "Broken.", every = 1 * hours, function() return nil, "no disk" end }]],
}

local revisions = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" }

local dir

local function moonpool(...) return gateway.exec({ ... }, { cwd = dir }) end

local function has(text, part) assert.truthy(text:find(part, 1, true), part .. " is not in: " .. text) end

local function url_of(g, revision) return ("http://127.0.0.1:%d/%s"):format(g.port, revision == "2024-11-05" and "sse" or "mcp") end

describe("the terminal", function()
  setup(function() dir = gateway.prepare { scripts = scripts } end)
  teardown(function() os.execute("rm -rf '" .. dir .. "'") end)

  it("reads, prompts and completes in every revision, here", function()
    for _, revision in ipairs(revisions) do
      assert.same({ 0, "order 7", "" }, { moonpool("read", "-r", revision, "orders://7") })
      assert.same({ 0, "\0\1\2\255\254", "" }, { moonpool("read", "-r", revision, "images://one") })
      assert.same({ 0, "user:\nReview x\n\nassistant:\nIn a brief way\n", "" }, { moonpool("prompt", "-r", revision, "review", "diff=x", "tone=brief") })
      assert.same({ 0, "brief\n", "" }, { moonpool("complete", "-r", revision, "review", "tone=b") })
      assert.same({ 0, "17\n18\n", "" }, { moonpool("complete", "-r", revision, "orders://{id}", "id=1") })
    end
  end)

  it("lists the names of resources that their URIs do not tell", function()
    local g <close> = gateway.start { workers = 1, scripts = { ["resources/note.lua"] = [[return resource { "A note.", uri = "notes://{id}",
      list = function() return { { id = 1, name = "Boats" }, { id = 2, name = "Cars", description = "What we drive." }, { id = 3 } } end,
      function() return "x" end }]] } }
    local code, out = gateway.exec { "list", "--url", g.url }
    assert.same({ 0, "resource  notes://1  Boats: A note.\nresource  notes://2  Cars: What we drive.\nresource  notes://3  A note.\n"
      .. "resource  notes://{id}  A note.\n" }, { code, out })
  end)

  it("reads, prompts and completes at a URL, and lists the things that it serves", function()
    local g <close> = gateway.start { scripts = scripts }
    local _, listed = moonpool "list"
    listed = listed:gsub("job  [^\n]*\n", "")
    for _, revision in ipairs(revisions) do
      local at = { "-u", url_of(g, revision), "-r", revision }
      local function there(command, ...) return moonpool(command, at[1], at[2], at[3], at[4], ...) end
      assert.same({ 0, listed, "" }, { there "list" })
      assert.same({ 0, "order 7", "" }, { there("read", "orders://7") })
      assert.equal("user", cjson.decode((select(2, there("prompt", "--raw", "review", "diff=x")))).messages[1].role)
      assert.same({ 0, "brief\n", "" }, { there("complete", "review", "tone=b") })
    end
    assert.equal(0, (moonpool("list", "-u", url_of(g))))
    assert.has_nothing_left(g)
  end)

  it("says what is wrong", function()
    for _, row in ipairs {
      { 1, "resource not found", "read", "orders://0" }, { 1, "", "prompt", "revew" }, { 2, "read takes one URI", "read" },
      { 2, "prompt takes the name of a prompt", "prompt" }, { 2, "'x' is not an argument", "prompt", "review", "x" },
      { 2, "complete takes a prompt or a URI template", "complete", "review" }, { 2, "job takes the name of one job", "job" },
      { 2, "--as, --names and --url exclude each other", "list", "--names", "tools", "--as", "ann" },
      { 2, "--names must be tools, resources, prompts or jobs", "list", "--names", "tool" },
      { 2, "needs --as or --url", "list", "--scopes", "x" },
      { 2, "did you mean 'run'?", "serve" }, { 2, "did you mean 'list'?", "tools" }, { 2, "did you mean 'read'?", "raed" },
    } do
      local code, out, err = moonpool(table.unpack(row, 3))
      assert.same({ row[1], "" }, { code, out }, table.concat(row, " ", 3))
      has(err, row[2])
    end
  end)

  it("runs a job now", function()
    assert.same({ 0, '{"swept":3}\n', "" }, { moonpool("job", "sweep") })
    assert.same({ 1, "", "moonpool: the job 'broken' failed: no disk\n" }, { moonpool("job", "broken") })
    assert.same({ 2, "", "moonpool: there is no job 'swep'\n  hint: did you mean 'sweep'?\n" }, { moonpool("job", "swep") })
  end)

  it("answers questions, in every revision that has them", function()
    for _, revision in ipairs { "2025-06-18", "2025-11-25", "2026-07-28" } do
      local function call(...)
        local code, out, err = moonpool("call", "-r", revision, "sure", ...)
        return code, out, code == 1 and err or nil
      end
      assert.same({ 0, "true Ann\n" }, { call("--answer", 'sure={"confirm": true}', "--answer", 'who={"name": "Ann"}') })
      assert.same({ 0, "false Ann\n" }, { call("--answer", '{"confirm":false}', "--answer", '"Ann"') })
      assert.same({ 1, "", "declined\n" }, { call("--answer", "sure=decline") })
      assert.same({ 1, "", "cancelled\n" }, { call("--answer", "sure=cancel") })
      local code, out, err = moonpool("call", "-r", revision, "sure", "--answer", "sure=true")
      assert.same({ 0, "true nobody\n" }, { code, out })
      has(err, "no --answer is left for the question")
    end
    for _, revision in ipairs { "2025-11-25", "2026-07-28" } do      -- an answer that does not fit is used once
      local code, _, err = moonpool("call", "-r", revision, "sure", "--answer", 'sure={"confirm": "perhaps"}')
      assert.equal(1, code)
      has(err, revision == "2025-11-25" and "invalid" or "no --answer is left for the question 'sure'")
    end
    local code, _, err = moonpool("call", "sure", "--answer", "sure={")
    assert.equal(2, code)
    has(err, "--answer sure: not JSON")
  end)

  it("prints names for completion", function()
    assert.same({ 0, "slow\nsure\n", "" }, { moonpool("list", "--names", "tools") })
    assert.same({ 0, "images://one\norders://{id}\n", "" }, { moonpool("list", "--names", "resources") })
    assert.same({ 0, "review\n", "" }, { moonpool("list", "--names", "prompts") })
    assert.same({ 0, "broken\nsweep\n", "" }, { moonpool("list", "--names", "jobs") })
  end)

  it("takes the configuration by -c in every command that has one", function()
    local elsewhere = gateway.new_folder()
    local function there(...) return gateway.exec({ ... }, { cwd = elsewhere }) end
    local file = dir .. "/moonpool.yaml"
    for _, row in ipairs {
      { "check" }, { "list" }, { "list", "--names", "tools" }, { "list", "--as", "ann" }, { "explain", "ann" }, { "read", "orders://7" },
      { "prompt", "review", "diff=x" }, { "complete", "review", "tone=b" }, { "job", "sweep" }, { "call", "--answer", "decline", "-j", "{}", "sure" },
    } do
      local code, _, err = there(row[1], "-c", file, table.unpack(row, 2))
      assert.is_true(code == 0 or row[1] == "call" and code == 1, table.concat(row, " ") .. "\n" .. err)
    end
    for _, command in ipairs { "check", "list", "run", "stdio", "status", "reload" } do
      local code, _, err = there(command, "-c", file, file)
      assert.equal(2, code)
      has(err, "the configuration is already given by --config")
    end
    local g <close> = gateway.start { scripts = scripts }
    local code, out, err = gateway.exec({ "status", "-c", g.dir .. "/moonpool.yaml", "-a", "127.0.0.1:" .. g.admin_port }, { cwd = elsewhere })
    assert.equal(0, code, err)
    has(out, "scripts: generation")
    os.execute("rm -rf '" .. elsewhere .. "'")
  end)
end)

describe("Ctrl-C of moonpool call", function()
  -- Starts a command; interrupts it once is_ready(its stderr); returns its exit code and its stderr.
  local function interrupted(args, cwd, is_ready)
    local folder = gateway.new_folder()
    local process = gateway.spawn(uv.fs_realpath(gateway.binary), args, folder, { cwd = cwd })
    local function err()
      local file <close> = assert(io.open(folder .. "/stderr", "rb"))
      return file:read "a"
    end
    wait.for_fact("the time to interrupt", 20, function() return is_ready(err()) end)
    uv.kill(process.pid, "sigint")
    wait.for_fact("the end of the command", 20, function() return process.code end)
    local text = err()
    os.execute("rm -rf '" .. folder .. "'")
    return process.code, text
  end

  local function has_progress(text) return text:find("progress 1", 1, true) end

  for _, revision in ipairs(revisions) do
    it("cancels the call and ends the session in " .. revision, function()
      local g <close> = gateway.start { scripts = scripts }
      local code, err = interrupted({ "call", "-u", url_of(g, revision), "-r", revision, "slow" }, nil, has_progress)
      assert.equal(130, code, err)
      has(err, "interrupted: the request is cancelled")
      g:wait_log("slow is over", {})
      g:wait_status(function(status)
        local sessions = status.gauges.sessions
        return status.gauges.requests_in_flight == 0 and sessions.http == 0 and sessions.sse == 0
      end)
      assert.has_nothing_left(g)
    end)
  end

  it("cancels the call of a child, too", function()
    local here = gateway.prepare { scripts = scripts }
    local code, err = interrupted({ "call", "slow" }, here, has_progress)
    assert.equal(130, code, err)
    has(err, "slow is over")
    os.execute("rm -rf '" .. here .. "'")
  end)

  it("ends a spec that runs, and the process that serves it", function()
    local here = gateway.prepare { scripts = { ["tools/slow.lua"] = scripts["tools/slow.lua"],
      ["tools/slow_spec.lua"] = "it('is slow', function() call('slow') end)" } }
    local code, err = interrupted({ "test" }, here, function(text) return text:find("slow begins", 1, true) end)
    assert.equal(1, code, err)
    has(err, "slow is over")
    os.execute("rm -rf '" .. here .. "'")
  end)

  it("ends at once while a server does not answer", function()
    local seen = 0
    local server <close> = stub.start(function() seen = seen + 1 end)
    local url = "http://127.0.0.1:" .. server.port .. "/mcp"
    local code, err = interrupted({ "call", "-u", url, "slow" }, nil, function() return seen > 0 end)
    assert.equal(130, code, err)
  end)
end)
