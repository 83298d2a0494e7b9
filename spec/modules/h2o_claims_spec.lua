-- What comments of core/net say about libh2o, tried on a server of the linked libh2o alone. docs/dev/libraries.md names
-- each.
local modules = require "modules"
local children = require "spec.helpers.children"
local gateway = require "spec.helpers.gateway"

-- What its handler sees of a request: a line for each.
local function seen(head, body)
  local answer, requests = modules.h2o.ask(head:gsub("\n", "\r\n") .. "\r\n\r\n" .. (body or ""))
  return requests, answer
end

-- Calls a function of the module with a request, in a process of its own.
local function run_alone(before, name)
  local path = os.tmpname()
  local file <close> = assert(io.open(path, "w"))
  file:write(("package.cpath = %q require 'modules'.h2o.%s 'GET / HTTP/1.0\\r\\n\\r\\n' print 'went on'"):format(package.cpath, name))
  file:close()
  local code, out, err = gateway.run_program("/bin/sh", { "-c", before .. "exec lua5.4 " .. path }, { env = { LD_PRELOAD = children.preload } })
  os.remove(path)
  return code, out .. err
end

describe("libh2o", function()
  it("uses the first of two lengths, and takes what is left for a request", function()
    local requests = seen("POST /a HTTP/1.1\nHost: a\nContent-Length: 3\nContent-Length: 5", "abcGET /b HTTP/1.1\r\nHost: b\r\n\r\n")
    assert.equal("a /a /a 0 abc\nb /b /b 0 \n", requests)
  end)

  it("uses the last of two Hosts, and keeps Host apart from the other headers", function()
    assert.equal("b /a /a 1 \n", (seen "GET /a HTTP/1.1\nHost: a\nAccept: x\nHost: b"))
  end)

  it("uses the configured host if there is none", function()
    assert.truthy((seen "GET /a HTTP/1.1\nConnection: keep-alive"):find("^configured /a "))
  end)

  it("decodes chunks before it looks at a length", function()
    local requests = seen("POST /a HTTP/1.1\nHost: a\nContent-Length: 3\nTransfer-Encoding: chunked", "4\r\nabcd\r\n0\r\n\r\n")
    assert.equal("abcd", requests:match "(%S*)\n")
  end)

  it("accepts bare line feeds in a head", function()
    local _, requests = modules.h2o.ask "GET /a HTTP/1.1\nHost: a\n\n"
    assert.equal("a /a /a 0 \n", requests)
  end)

  it("accepts a target without a slash, and takes an absolute URL for a path", function()
    assert.equal("a mcp /mcp 0 \n", (seen "GET mcp HTTP/1.1\nHost: a"))
    assert.equal("a http://b/c /http://b/c 0 \n", (seen "GET http://b/c HTTP/1.1\nHost: a"))
  end)

  it("takes 100 headers and no more", function()
    local function with(count) return seen("GET /a HTTP/1.1\nHost: a" .. ("\nX-A: b"):rep(count)) end
    assert.equal("a /a /a 99 \n", (with(99)))
    assert.equal("", (with(101)))
  end)

  it("does not notice that a client has left while its request is not answered", function()
    local _, ended = modules.h2o.ask("GET /a HTTP/1.1\r\nHost: a\r\n\r\n", true)
    assert.is_false(ended)
  end)

  it("refuses a chunked body that reaches its limit, and another one only above it", function()
    local function status(text) return (modules.h2o.ask("POST /a HTTP/1.1\r\nHost: a\r\n" .. text, false, 10)):match "^HTTP/1.1 (%d+)" end
    assert.equal("200", status("Content-Length: 10\r\n\r\n" .. ("a"):rep(10)))
    assert.equal("413", status("Content-Length: 11\r\n\r\n" .. ("a"):rep(11)))
    assert.equal("200", status "Transfer-Encoding: chunked\r\n\r\n9\r\naaaaaaaaa\r\n0\r\n\r\n")
    assert.equal("413", status "Transfer-Encoding: chunked\r\n\r\na\r\naaaaaaaaaa\r\n0\r\n\r\n")
  end)

  -- patches 09 and 10: the head is copied as one block, and read many bytes at once
  it("passes the headers of a request on, whatever their lengths, with names in lower case", function()
    for _, more in ipairs { "", "Content-Length: 3\r\n" } do
      local lines, expected = {}, {}
      for len = 1, 34 do
        local name = ("X-@A[Z`a{z_0"):rep(3):gsub("[@%[{]", "~"):sub(1, len)
        lines[len] = ("%s:%s%s\r\n"):format(name, (" "):rep(len % 3), ("v"):rep(len - 1))
        expected[len] = ("%s: %s\n"):format(name:lower(), ("v"):rep(len - 1))
      end
      local requests = modules.h2o.headers("POST /a HTTP/1.1\r\nHost: a\r\n" .. table.concat(lines) .. more .. "\r\n" .. (more == "" and "" or "abc"))
      assert.equal(table.concat(expected), requests)
    end
  end)

  it("reads the same bytes in names and values at each place, and refuses the others", function()
    local parse = modules.h2o.parse
    local tchar, text = "^[%w!#$%%&'*+.^_`|~-]$", "^[\t -~\128-\255]$"
    for _, len in ipairs { 1, 2, 7, 8, 15, 16, 17, 31, 33 } do
      for at = 0, len - 1 do
        for code = 0, 255 do
          local byte = string.char(code)
          local word = ("n"):rep(at) .. byte .. ("n"):rep(len - 1 - at)
          if byte ~= ":" and not (at == 0 and byte == "\n") then
            assert.equal(byte:find(tchar) and word or "refused", (parse(("GET / HTTP/1.1\r\n%s: v\r\n\r\n"):format(word))))
          end
          if byte ~= "\n" and not (at == 0 and byte:find "[\t ]") then
            local name, value = parse(("GET / HTTP/1.1\r\nn: %s\r\n\r\n"):format(word))
            assert.equal(byte:find(text) and word or "refused", value or name)
          end
        end
      end
    end
  end)

  it("reads no byte behind those that have come", function()
    local head = ("GET / HTTP/1.1\r\n%s: %s\r\n\r\n"):format(("n"):rep(40), ("v"):rep(40))
    for len = 1, #head - 1 do assert.equal("incomplete", (modules.h2o.parse(head:sub(1, len)))) end
    assert.equal(("n"):rep(40), (modules.h2o.parse(head)))
  end)

  it("has its epoll descriptor in memory behind the part of the loop that its header declares", function()
    assert.equal("anon_inode:[eventpoll]", modules.h2o.after_loop())
  end)

  it("leaves the epoll descriptor of a destroyed loop open", function()
    assert.equal("anon_inode:[eventpoll]", modules.h2o.after_destroy())
  end)

  it("takes no more events in one run than it was told, and says how many it took", function()
    assert.same({ 32, 32 }, { modules.h2o.events(80, 32) })
    assert.same({ 5, 5 }, { modules.h2o.events(5, 32) })
    assert.same({ 80, 80 }, { modules.h2o.events(80, 256) })
  end)

  -- A request that is answered in a later run of the loop stops its connection's reading until then.
  it("leaves a socket registered while it is not read, until something comes for it", function()
    assert.same({ "6", { 1, 1, 1, 1 } }, { modules.h2o.registrations "rtsttrwt" })
    assert.same({ "3", { 1, 0, 0, 1, 1 } }, { modules.h2o.registrations "rtswttrtt" })
    assert.same({ "!", { 1, 0, 1 } }, { modules.h2o.registrations "rtsctrt" })
  end)

  -- What 256 requests touch leaves the processor's caches before they are answered.
  it("takes few events in a turn, unless each of them takes long", function()
    assert.equal(32, modules.h2o.most_events(300, 32, 1))
    assert.equal(32, modules.h2o.most_events(900, 1, 1))
    assert.equal(32, modules.h2o.most_events(3000, 256, 1))
    assert.equal(32, modules.h2o.most_events(5000, 32, 0)) -- it may have waited for a processor
    assert.equal(256, modules.h2o.most_events(5000, 32, 1))
    assert.equal(256, modules.h2o.most_events(20000, 256, 7))
    assert.equal(256, modules.h2o.most_events(5000, 0, 1))
    assert.equal(256, modules.h2o.most_events(5000, 256, 1, true))
    assert.equal(32, modules.h2o.most_events(5000, 256, 16, true)) -- work may be left because 256 were taken
    assert.equal(256, modules.h2o.most_events(5000, 32, 16, true))
  end)

  -- Else a busy worker reads the requests of all its clients before it reads the first answer of an upstream.
  it("serves all watched descriptors that are ready before it takes more events of clients", function()
    assert.equal(31, modules.h2o.before(300, 1))
    assert.equal(31, modules.h2o.before(300, 200))
    assert.equal(31, modules.h2o.before(31, 200))
    assert.equal(0, modules.h2o.before(0, 200))
  end)

  it("writes so that a client that has left is a signal, SIGPIPE", function()
    local code, out = run_alone("", "leave")
    assert.equal(-13, code, out)
  end)

  it("ends the process where it cannot open its descriptors", function()
    if os.getenv "MOONPOOL_EMULATED" then return pending "qemu needs descriptors of its own" end
    local code, out = run_alone("ulimit -n 5; exec 4</dev/null; ", "ask")
    assert.equal(-6, code, out) -- SIGABRT
    assert.falsy(out:find("went on", 1, true))
  end)
end)
