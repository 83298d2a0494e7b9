-- For wrk: one POST, over and over. The environment says which: BENCH_BODY, and BENCH_HEADERS as "name: value" lines.
wrk.method = "POST"
wrk.path = "/mcp"
wrk.body = os.getenv "BENCH_BODY"
for name, value in os.getenv("BENCH_HEADERS"):gmatch "([^:\n]+): ([^\n]*)" do
  wrk.headers[name] = value
end

-- BENCH_PORTS are ports of this machine, with spaces: each thread of wrk takes the next one.
local addresses, taken = {}, 0
for port in (os.getenv "BENCH_PORTS" or ""):gmatch "%d+" do addresses[#addresses + 1] = port end
if addresses[1] then
  local world = _G
  function world.setup(thread)
    thread.addr = wrk.lookup("127.0.0.1", addresses[taken % #addresses + 1])[1]
    taken = taken + 1
  end
end

-- BENCH_COUNT is a time and a path: "1764460800 /tmp/sent". Each thread of wrk writes how many requests it has sent by that
-- time, in whole seconds since 1970, to the file PATH.NUMBER.
local at, path = (os.getenv "BENCH_COUNT" or ""):match "^(%d+) (.+)$"
if at then
  local world, sent, text, threads = _G, 0, nil, 0
  at = tonumber(at)
  function world.setup(thread)
    threads = threads + 1
    thread:set("number", threads)
  end
  function world.init()
    text = wrk.format()
  end
  function world.request()
    if at and os.time() >= at then
      local file = assert(io.open(path .. "." .. world.number, "w"))
      file:write(sent)
      file:close()
      at = nil
    end
    sent = sent + 1
    return text
  end
end
