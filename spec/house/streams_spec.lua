-- A stream in core/rpc is never NULL: where there is none it is rpc->no_stream, which is gone for all functions. A
-- comparison with NULL would say that it can be, and the next use would forget it.

local function lines_with(pattern, folder)
  local found = {}
  local list <close> = assert(io.popen("find " .. folder .. " -name '*.[ch]' | sort"))
  for path in list:lines() do
    local number = 0
    for line in io.lines(path) do
      number = number + 1
      if line:find(pattern) then found[#found + 1] = ("%s:%d: %s"):format(path, number, line) end
    end
  end
  return found
end

describe("a stream of the server role", function()
  it("is compared with NULL nowhere", function()
    assert.same({}, lines_with("%f[%w]stream [!=]= NULL", "core/rpc"))
  end)

  it("is no concern of call.c, which has calls of all transports", function()
    for _, line in ipairs(lines_with("call%->stream", "core/rpc/call")) do assert.is_nil(line:find("^core/rpc/call/call%.c"), line) end
  end)
end)
