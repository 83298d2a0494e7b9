-- URIs that are spelt differently and mean the same have one normal form.
package.path = "./lua/?.lua;" .. package.path
local uris = require "moonpool.runtime.uris"

describe("a URI", function()
  it("has a normal form, which is its own", function()
    for _, row in ipairs {
      { "db://%73ecret/1", "db://secret/1" }, { "DB+x://Host/A", "db+x://Host/A" }, { "x:%2d%2E%5f%7E%41", "x:-._~A" }, { "x:%c3%a9", "x:%C3%A9" },
      { "x:\u{e9}", "x:%C3%A9" }, { "x:a%2fb%3F%23%26", "x:a%2Fb%3F%23%26" }, { "x:%2573", "x:%2573" }, { "x:%", "x:%" }, { "x:%7", "x:%7" },
      { "x:%zz", "x:%zz" }, { "x:%00", "x:%00" }, { "x:{a}", "x:%7Ba%7D" }, { "", "" }, { "no scheme", "no scheme" }, { "x:a//b/../c", "x:a//b/../c" },
    } do
      local normal = uris.normal(row[1])
      assert.equal(row[2], normal)
      assert.equal(normal, uris.normal(normal))
    end
    assert.equal("x:{+a}/%C3%A9{?b}", uris.normal("X:{+a}/\u{e9}{?b}", true))
  end)

  it("has a plain one, in which nothing reserved hides", function()
    for _, row in ipairs {
      { "db://a%2Fb/%40c", "db://a/b/@c" }, { "files://a//b///c/", "files://a/b/c/" }, { "file:///a//b", "file:///a/b" }, { "x:a//b", "x:a/b" },
      { "x:%2573%20%25", "x:%2573%20%25" }, { "*://a//b", "*://a/b" }, { "x:%5B%5D%21%2C", "x:[]!," },
    } do
      assert.equal(row[2], uris.plain(row[1]))
    end
  end)
end)
