-- The keys of the listener for other nodes: what is missing, or contradicts something, is said with what to do.
local gateway = require "spec.helpers.gateway"

local function check(section)
  local begin <const> = "seal_keys: [a secret of sixteen or more characters]\ncluster: {name: prod, redis: redis://127.0.0.1:1, "
  local dir = gateway.prepare { config = begin .. section .. "}\n" }
  local code, _, err = gateway.exec({ "check" }, { cwd = dir })
  os.execute("rm -rf '" .. dir .. "'")
  return code, err
end

describe("the address for other nodes", function()
  it("needs what tells nodes from others, and what they can connect to", function()
    local tls <const> = "tls: {certificate: n.pem, key: n.key, ca: ca.pem}"
    for section, why in pairs {
      ["listen: 10.0.0.5:7310"] = "other machines can reach '10.0.0.5:7310', and it has no 'tls'",
      ["listen: 0.0.0.0:7310, " .. tls] = "'0.0.0.0:7310' stands for every address of this machine",
      ["listen: '[::]:7310', " .. tls] = "'[::]:7310' stands for every address of this machine",
      ["advertise: 10.0.0.5:7310"] = "'cluster.advertise' needs 'cluster.listen'",
      [tls] = "'cluster.tls' needs 'cluster.listen'",
      ["listen: 127.0.0.1:7310, tls: {certificate: n.pem, key: n.key}"] = "'cluster.tls' needs 'certificate', 'key' and 'ca'",
      ["listen: 127.0.0.1:7310, tls: {certificate: n.pem, key: n.key, ca: ca.pem, name: 'a b'}"] = "a DNS name consists of letters, digits",
      ["listen: unix:/run/x"] = "other machines cannot connect to it",
      ["listen: systemd:x"] = "other machines cannot connect to it",
      ["listen: 7310"] = "the host is missing",
      ["listen: 127.0.0.1:7310, advertise: 10.0.0.5"] = "the port is missing",
    } do
      local code, err = check(section)
      assert.equal(78, code, section)
      assert.truthy(err:find(why, 1, true), section .. "\n" .. err)
    end
  end)

  it("may be a loopback address without TLS, and another one than the others connect to", function()
    for _, section in ipairs { "listen: 127.0.0.1:0", "listen: '[::1]:7310'", "listen: 127.0.0.1:7310, advertise: 10.0.0.5:7310" } do
      local code, err = check(section)
      assert.equal(0, code, section .. "\n" .. err)
    end
  end)
end)
