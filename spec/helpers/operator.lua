-- What the page about the admin listener needs: a gateway with tokens, a tool and an upstream, and programs that make
-- its commands strict.
--   operator.put(player)     page.lua's option `before`
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"
local shell = require "spec.helpers.shell"

local write = shell.write

local operator = {}

local CONFIG <const> = [[
listen: 127.0.0.1:7300
admin: {listen: "127.0.0.1:7301", tokens: {operate: {ann: "${MOONPOOL_ADMIN_TOKEN}"}}}
upstreams: {github: {url: "http://127.0.0.1:9/mcp"}}
limits: {linger: 3s}
]]

local REFUND <const> = [[
return tool { "Refund an order.", input = { order = t.integer }, scopes = { "orders:refund" }, function(args) return "refunded " .. args.order end }
]]

-- curl that fails where the gateway refuses. The page's ids of sessions, calls and the like are made up: those give
-- 404. A stream that does not end is left after two seconds, as by Ctrl-C.
local CURL <const> = [==[
#!/bin/sh
code=0
/usr/bin/curl --fail-with-body --max-time 2 "$@" || code=$?
case "$code $*" in
22*/api/session/* | 22*/api/call/* | 22*/api/stream/* | 22*/api/task/* | 22*/api/answer/*) exit 0 ;;
28*-N*) exit 0 ;;
esac
exit $code
]==]

-- The alias of the page, which lasts for one block.
local ADMIN <const> = [==[
#!/bin/sh
exec curl -s -H "Authorization: Bearer $MOONPOOL_ADMIN_TOKEN" -H "moonpool-admin: 1" -H "content-type: application/json" "$@"
]==]

-- A command that goes on until Ctrl-C gets it.
local MOONPOOL <const> = [==[
#!/bin/sh
case $1 in
tap | profile) ;;
*) exec PROGRAM "$@" ;;
esac
timeout --preserve-status --signal INT 1 PROGRAM "$@" || [ $? = 130 ]
]==]

function operator.put(player)
  write(player.state, "export MOONPOOL_ADMIN_TOKEN=" .. ("t"):rep(64) .. "\n")
  local dir = player.dir .. "/operated"
  assert(gateway.run_program("/bin/mkdir", { "-p", dir .. "/scripts/tools" }) == 0)
  write(dir .. "/moonpool.yaml", CONFIG)
  write(dir .. "/scripts/tools/refund.lua", REFUND)
  player:start({ line = 0 }, "moonpool run " .. dir .. "/moonpool.yaml &")
  for name, text in pairs { curl = CURL, admin = ADMIN, moonpool = MOONPOOL:gsub("PROGRAM", (example.program())) } do player:put_program(name, text) end
  -- Commands without --admin take the address from this file, as one that stands in the folder of the gateway.
  write(player.cwd .. "/moonpool.yaml", player:ports(CONFIG))
end

return operator
