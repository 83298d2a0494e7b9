-- What moonpool upgrade prints of a service whose unit has changed: systemctl is asked about the unit of both
-- processes.
local cjson = require "cjson"

describe("what moonpool upgrade prints", function()
  local text, real_open, real_popen, real_json
  local cgroups, answer, asked

  -- A file with this text.
  local function file(of)
    return setmetatable({ read = function(_, how) return how == "l" and of:match "^[^\n]*" or of end }, { __close = function() end })
  end

  setup(function()
    real_open, real_popen, real_json = io.open, io.popen, package.loaded["moonpool.json"]
    package.loaded["moonpool.json"] = { decode = function(body)
      local value = cjson.decode(body)
      value.pid, value.from.pid = math.tointeger(value.pid), math.tointeger(value.from.pid)
      return value
    end }
    text = dofile "lua/moonpool/workbench/format/upgrade.lua".text
    package.loaded["moonpool.json"] = real_json
  end)

  local function printed(is_service)
    rawset(io, "open", function(path) return cgroups[path] and file(cgroups[path]) end)
    rawset(io, "popen", function(command)
      asked = command
      return file(answer)
    end)
    local ok, result = pcall(text, ('{"pid":20,"version":"2","from":{"pid":10,"version":"1"},"is_service":%s}'):format(is_service))
    rawset(io, "open", real_open)
    rawset(io, "popen", real_popen)
    assert(ok, result)
    return result
  end

  local function of(path) cgroups = { ["/proc/10/cgroup"] = path, ["/proc/20/cgroup"] = path } end

  before_each(function() asked = nil end)

  local WARNING <const> = "the file of %s has changed since systemd read it: run systemctl daemon-reload, and restart it when that suits"

  it("says so where systemd does", function()
    of "0::/system.slice/moonpool.service\n"
    answer = "yes\n"
    assert.matches("\n" .. WARNING:format "moonpool.service", printed(true), 1, true)
    assert.matches("systemctl --system show --property=NeedDaemonReload --value -- 'moonpool.service'", asked, 1, true)
  end)

  it("asks the manager of a user about a unit of that one", function()
    of "1:name=systemd:/\n0::/user.slice/user-1000.slice/user@1000.service/app.slice/mp@a\\x2db.service\n"
    assert.matches("\n" .. WARNING:format "mp@a\\x2db.service", printed(true), 1, true)
    assert.matches("systemctl --user show --property=NeedDaemonReload --value -- 'mp@a\\x2db.service'", asked, 1, true)
  end)

  it("has no such line where the unit is as it was, or systemd does not answer", function()
    of "0::/system.slice/moonpool.service\n"
    for _, one in ipairs { "no\n", "" } do
      answer = one
      assert.is_nil(printed(true):find("has changed", 1, true))
      assert.truthy(asked)
    end
  end)

  it("asks nobody about what is no service, about processes of two units, and about names that are none", function()
    answer = "yes\n"
    for _, path in ipairs { "", "0::/\n", "0::/user.slice/session-1.scope\n", "0::/system.slice/a'; rm -r b.service\n", "0::/moonpool.service/part\n" } do
      of(path)
      assert.is_nil(printed(false):find("has changed", 1, true), path)
    end
    cgroups = { ["/proc/10/cgroup"] = "0::/a.service\n", ["/proc/20/cgroup"] = "0::/b.service\n" }
    assert.is_nil(printed(true):find("has changed", 1, true))
    cgroups = {}
    assert.is_nil(printed(true):find("has changed", 1, true))
    assert.is_nil(asked)
  end)
end)
