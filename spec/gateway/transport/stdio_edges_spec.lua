-- The lines of `moonpool stdio`, the ends of its pipes, and errors there. Rules I-1, I-2, I-4, I-6, L-7, B-66.
-- proves: lines, ends and bad bytes of a pipe 2024-11-05.. stdio
-- proves: server notifications/cancelled 2026-07-28 stdio
local cjson = require "cjson"
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local stdio = require "spec.helpers.stdio"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/echo.lua"] = [[return tool { "Echo.", input = { text = t.string }, function(args) return args.text end }]],
  ["tools/slow.lua"] = [[return tool { "Slow.", input = { seconds = t.number }, function(args) log.info "waits" sleep(args.seconds) return "done" end }]],
  ["tools/chatty.lua"] = [[return tool { "Chatty.", input = { n = t.integer }, function(args, call)
    for i = 1, args.n do call:progress(i, args.n, ("x"):rep(1000)) if i % 100 == 0 then sleep(0) end end
    return "said"
  end }]],
}

local function request(id, name, arguments, meta)
  return { jsonrpc = "2.0", id = id, method = "tools/call", params = { name = name, arguments = arguments, _meta = meta } }
end

local hello = {
  jsonrpc = "2.0", id = 0, method = "initialize",
  params = { protocolVersion = "2025-11-25", capabilities = cjson.decode "{}", clientInfo = { name = "spec", version = "1" } },
}

local function text_of(answer)
  return answer.result.content[1].text
end

describe("a line", function()
  it("may end in CR LF, be blank, come in pieces or many at once", function()
    local s <close> = stdio.start { scripts = scripts }
    s:send_raw("\r\n\n  \t \n" .. cjson.encode(hello) .. "\r\n")
    assert.is_table(s:expect(0).result)
    local line = cjson.encode(request(1, "echo", { text = "höhe" })) .. "\n"
    local cut = line:find "\xb6" -- the text is cut inside a character
    s:send_raw(line:sub(1, cut - 1))
    wait.quietly(0.02)
    s:send_raw(line:sub(cut))
    assert.equal("höhe", text_of(s:expect(1)))
    local many = {}
    for i = 1, 500 do many[i] = cjson.encode(request(1000 + i, "echo", { text = "t" .. i })) end
    s:send_raw(table.concat(many, "\n") .. "\n")
    for i = 1, 500 do assert.equal("t" .. i, text_of(s:expect(1000 + i))) end
    assert.equal(0, s:leave())
  end)

  it("that is not a message is answered without an id, and the next line is served", function()
    local s <close> = stdio.start { scripts = scripts }
    s:client "2025-11-25"
    local good = cjson.encode(request(7, "echo", { text = "good" }))
    for i, line in ipairs {
      "garbage", "{", "\xff\xfe", "\xef\xbb\xbf" .. good, (good:gsub("good", "\xc0\xaf")), (good:gsub("good", "\\ud800")),
      (good:gsub("good", "a\0b")), good .. good, ("["):rep(1000),
    } do
      s:send(line)
      assert.equal(-32700, s:expect_error().code, "line " .. i)
    end
    for _, line in ipairs { "5", "null", '"text"', "{}", '{"jsonrpc":"1.0","id":1,"method":"ping"}', '{"jsonrpc":"2.0","id":null,"method":"ping"}' } do
      s:send(line)
      local answer = s:expect(function(json) return json.error ~= nil end)
      assert.equal(-32600, answer.error.code, line)
      assert.is_not.equal(cjson.null, answer.id)
    end
    s:send '{"jsonrpc":"2.0","error":{"code":-32700,"message":"what?"}}' -- answering an error with an error would never end
    s:send(request(8, "echo", { text = "\u{10FFFF}" }))
    assert.equal("\u{10FFFF}", text_of(s:expect(8)))
    assert.equal(0, s:leave())
  end)

  it("of limits.body is accepted, a longer one is skipped with an error", function()
    local s <close> = stdio.start { scripts = scripts }
    local c = s:client "2025-11-25"
    local frame = #cjson.encode(request(8, "echo", { text = "" }))
    local text = ("x"):rep(4 * 1024 * 1024 - frame)
    s:send_raw(cjson.encode(request(8, "echo", { text = text })) .. "\r\n")
    assert.equal(#text, #text_of(s:expect(8, 30)))
    for _, size in ipairs { #text + 1, 5 * 1024 * 1024, 20 * 1024 * 1024 } do
      s:send(request(9, "echo", { text = ("y"):rep(size) }))
      assert.matches("limits.body", s:expect_error(30).message, 1, true)
      assert.same({}, c:result "ping")
    end
    assert.is_true(s:rss() < 200 * 1024 * 1024)
    assert.equal(0, s:leave())
  end)
end)

describe("the end of stdin", function()
  it("lets running calls end and sends their answers", function()
    local s <close> = stdio.start { scripts = scripts }
    s:send(hello)
    for i = 1, 5 do s:send(request(i, "slow", { seconds = 0.1 * i })) end
    s:finish()
    for i = 1, 5 do assert.equal("done", text_of(s:expect(i))) end
    s:expect(0)
    assert.equal(0, s:leave())
  end)

  it("accepts a last line without a line end", function()
    local s <close> = stdio.start { scripts = scripts }
    s:send_raw(cjson.encode(hello))
    s:finish()
    assert.is_table(s:expect(0).result)
    assert.equal(0, s:leave())
  end)

  it("gives calls limits.drain, then an error", function()
    local s <close> = stdio.start { scripts = scripts, config = { limits = { drain = "100ms" } } }
    s:client "2025-11-25"
    s:send(request(7, "slow", { seconds = 60 }))
    s:wait_log "waits"
    s:finish()
    assert.equal(-32603, s:expect(7).error.code)
    assert.equal(0, s:leave())
  end)

  it("followed by SIGTERM ends the process at once", function()
    local s <close> = stdio.start { scripts = scripts }
    s:client "2025-11-25"
    s:send(request(7, "slow", { seconds = 60 }))
    s:wait_log "waits"
    s:finish()
    s:wait_log("draining", { why = "end of input" })
    s:signal "sigterm"
    assert.equal(0, s:wait_exit(3))
    assert.equal(0, s:stop())
  end)
end)

describe("SIGTERM", function()
  it("lets running calls end, refuses new ones, and accepts answers and cancellations for running ones", function()
    local s <close> = stdio.start { scripts = scripts }
    s:client "2025-11-25"
    s:send(request(7, "slow", { seconds = 0.5 }))
    s:send(request(8, "slow", { seconds = 60 }))
    wait.for_fact("both to wait", 20, function() return select(2, s:log():gsub("waits", "")) == 2 end)
    s:signal "sigterm"
    local id = 100
    wait.for_fact("a call to be refused", 20, function()
      id = id + 1
      s:send(request(id, "echo", { text = "late" }))
      local answer = s:expect(id)
      return answer.error and assert.equal(-32603, answer.error.code)
    end)
    s:send { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = 8 } }
    assert.equal("done", text_of(s:expect(7)))
    assert.equal(0, s:wait_exit())
    s:assert_nothing_left()
  end)

  it("a second time ends the process at once", function()
    local s <close> = stdio.start { scripts = scripts }
    s:client "2025-11-25"
    s:send(request(7, "slow", { seconds = 60 }))
    s:wait_log "waits"
    s:signal "sigterm"
    s:wait_log "draining"
    s:signal "sigterm"
    assert.equal(0, s:wait_exit(3))
  end)
end)

describe("a client that reads nothing", function()
  it("is not read from while it reads nothing, loses no answer, and gets every message when it reads again", function()
    local s <close> = stdio.start { scripts = scripts, config = { limits = { stream_queue = "64KiB" } } }
    s:client "2025-11-25"
    s:pause()
    local text = ("z"):rep(10000)
    for i = 1, 400 do s:send(request(i, "echo", { text = text })) end
    wait.quietly(0.3)
    assert.is_true(s.input:get_write_queue_size() > 0) -- bytes that the process does not take wait on this side
    assert.is_true(s:rss() < 100 * 1024 * 1024)
    s:resume()
    for i = 1, 400 do assert.equal(#text, #text_of(s:expect(i, 30))) end
    assert.equal(0, s:leave())
  end)

  it("loses notifications that are too many, never the answer", function()
    local s <close> = stdio.start { scripts = scripts, config = { limits = { stream_queue = "64KiB" } } }
    s:client "2025-11-25"
    s:pause()
    s:send(request(7, "chatty", { n = 5000 }, { progressToken = "p" }))
    s:finish()
    wait.quietly(0.5)
    s:resume()
    assert.equal("said", text_of(s:expect(7, 30)))
    local count = 0
    for _, message in ipairs(s.messages) do
      if message.json.method == "notifications/progress" then
        count, message.given = count + 1, true
      end
    end
    assert.is_true(count > 0 and count < 5000)
    assert.equal(0, s:leave())
  end)
end)

describe("a client that has disconnected", function()
  for _, kind in ipairs { "pipe", "socket" } do
    it("is noticed at once when it closes our stdout (" .. kind .. ")", function()
      local s <close> = stdio.start { scripts = scripts, kind = kind }
      s:client "2025-11-25"
      s:send(request(7, "slow", { seconds = 60 }))
      s:wait_log "waits"
      s:close_output()
      assert.equal(0, s:wait_exit(3))
      s:wait_log("call cancelled", { why = "disconnected" })
    end)
  end
end)

describe("descriptors of other kinds", function()
  local function folder()
    return gateway.prepare { scripts = scripts }
  end

  -- Runs a shell line in a folder with a configuration: returns exit code, stdout, stderr.
  local function shell(line, dir)
    local path = uv.fs_realpath(gateway.binary)
    return gateway.run_program("/bin/sh", { "-c", line }, { cwd = dir, env = { M = path } })
  end

  it("are served: files, /dev/null, a full disk", function()
    local dir = folder()
    local file <close> = assert(io.open(dir .. "/in", "w"))
    file:write(cjson.encode(hello), "\n")
    for i = 1, 3000 do file:write(cjson.encode(request(i, "echo", { text = "t" .. i })), "\n") end
    file:close()
    local code, out = shell("$M stdio < in > out && wc -l < out && $M stdio < in | wc -l && $M stdio < /dev/null", dir)
    assert.same({ 0, "3001\n3001\n" }, { code, out })
    local full, _, err = shell("$M stdio < in > /dev/full", dir)
    assert.equal(1, full)
    assert.matches("cannot write", err, 1, true)
    for _, closing in ipairs { "<&-", ">&-", "0>/dev/null", "1<in" } do
      local closed, _, said = shell("$M stdio " .. closing, dir)
      assert.equal(1, closed, closing)
      assert.matches("cannot use stdin and stdout", said, 1, true)
    end
  end)

  -- True if the open file behind a descriptor of this process blocks, also for other processes that share it.
  local function blocks(fd)
    local info <close> = assert(io.open("/proc/self/fdinfo/" .. fd))
    return tonumber(info:read("a"):match "flags:%s+(%d+)", 8) & 2048 == 0 -- O_NONBLOCK
  end

  it("keep their blocking mode, which other processes share", function()
    local dir = folder()
    local pair = assert(uv.socketpair("stream", nil, { nonblock = false }, { nonblock = true }))
    local ours = uv.new_pipe(false)
    ours:open(pair[2])
    local process = gateway.spawn(uv.fs_realpath(gateway.binary), { "stdio" }, dir, { cwd = dir, stdin = pair[1], stdout = pair[1] })
    wait.for_fact("it to have taken the socket", 10, function() return not blocks(pair[1]) end)
    local said = ""
    ours:read_start(function(_, bytes) said = said .. (bytes or "") end)
    ours:write(cjson.encode(hello) .. "\n")
    wait.for_fact("an answer", 20, function() return said:find "\n" end)
    ours:shutdown(function() end)
    wait.for_fact("its end", 20, function() return process.code end)
    assert.same({ 0, true }, { process.code, blocks(pair[1]) })
    ours:close()
    uv.fs_close(pair[1])
  end)

  it("may be a terminal, whose user gets an explanation", function()
    local code, out = shell([[printf '\004' | script -qec '$M stdio; cat /proc/self/fdinfo/0' /dev/null]], folder())
    assert.equal(0, code)
    assert.matches("Ctrl-D ends it", out, 1, true)
    assert.matches("stopped", out, 1, true)
    assert.equal(0, tonumber(out:match "flags:%s+(%d+)", 8) & 2048)
  end)
end)

describe("a subscriptions/listen call", function()
  local listen = {
    jsonrpc = "2.0", id = "ears", method = "subscriptions/listen",
    params = {
      notifications = { toolsListChanged = true },
      _meta = {
        ["io.modelcontextprotocol/protocolVersion"] = "2026-07-28",
        ["io.modelcontextprotocol/clientCapabilities"] = cjson.decode "{}",
      },
    },
  }

  it("is notified of its end, and gets its result, when the gateway ends (B-6)", function()
    local s <close> = stdio.start { scripts = scripts }
    s:send(listen)
    s:expect "notifications/subscriptions/acknowledged"
    s:finish()
    assert.equal("ears", s:expect("notifications/cancelled").params.requestId)
    assert.equal("complete", s:expect("ears").result.resultType)
    local order = {}
    for i, message in ipairs(s.messages) do order[i] = message.json.method or message.json.id end
    assert.same({ "notifications/subscriptions/acknowledged", "notifications/cancelled", "ears" }, order)
    assert.equal(0, s:leave())
  end)

  it("ends without a message when its client cancels it (B-5)", function()
    local s <close> = stdio.start { scripts = scripts }
    s:send(listen)
    s:expect "notifications/subscriptions/acknowledged"
    s:send { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = "ears" } }
    local ping = request(1, "echo", { text = "here" }, listen.params._meta)
    s:send(ping)
    assert.equal("here", text_of(s:expect(1)))
    assert.equal(0, s:leave())
  end)
end)
