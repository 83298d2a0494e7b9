-- The heads of responses that core/net writes instead of libc equal libc's, byte for byte.
package.cpath = (os.getenv("MOONPOOL_MODULES") or "build/debug") .. "/?.so;" .. package.cpath
local net = require("modules").net

describe("the head of a response", function()
  it("is what libc writes, for statuses, reasons, lengths and both connection words", function()
    for _, status in ipairs { 100, 200, 202, 204, 304, 400, 404, 431, 503, 599, 999 } do
      for _, connection in ipairs { "keep-alive", "close" } do
        for power = 0, 40 do
          for _, length in ipairs { 2 ^ power // 1 | 0, (2 ^ power // 1 | 0) - 1, 10 ^ (power // 4) // 1 | 0 } do
            local reason = power % 2 == 0 and "OK" or "Internal Server Error"
            local date = "Sun, 22 Nov 2026 10:00:00 GMT"
            assert.equal(net.plain_head(status, reason, date, connection, length), net.head(status, reason, date, connection, length))
          end
        end
      end
    end
    assert.equal(net.plain_head(200, "", "", "", 0), net.head(200, "", "", "", 0))
  end)

  it("has the Server header that libc writes", function()
    for _, name in ipairs { "", "moonpool", ("x"):rep(1000) } do assert.equal(net.plain_server(name), net.server(name)) end
  end)

  it("leaves every other format to libc", function()
    assert.equal("42-text", net.other(42, "text"))
  end)
end)
