-- What holds for a client of an official SDK on a direct connection to a server of one, and not through the gateway.
-- `server`, `client`: patterns of names; `check`; `why`; `is_by_chance`: it may hold all the same.
local cluster = require "spec.helpers.cluster"

local NO_LEVEL <const> = "in 2026-07-28 log messages come for requests that name a level: this client names none, and speaks an older revision directly"
local OWN_PROCESS <const> = "open: a client that can be asked has a process of its own at a server of both eras; lists and subscriptions belong to another one"
local OLD <const> = "over HTTP+SSE this client asks for 2024-11-05, which has none of it; the server sends it all the same"
local AT_ONCE <const> = "clients of this SDK lose progress that comes at once with the answer, or take it out of order"
local LATE <const> = "over stdio a client of this SDK that leaves ends with an error if a message comes meanwhile, whoever the server is"
local BESIDE <const> = "open: in a session this server logs beside the stream of the call; what comes after the answer belongs to no call, and is not passed on"
local ONE_SESSION <const> = "a server that says only to one session what has changed says it to one node: a client without a session listens at another"
local EARLY <const> = "open: this client does not wait until its subscription is there"

local list = {}

local function add(check, server, client, why, is_by_chance)
  list[#list + 1] = { check = check, server = server, client = client, why = why, is_by_chance = is_by_chance }
end

for _, client in ipairs { "^typescript%-sdk 2%.4%.0$", "^go%-sdk 1%.8%.0$", "^rmcp 3%.11%.0$" } do add("log", "", client, NO_LEVEL, true) end
for _, server in ipairs { "^sdk 2.4.0 of both eras stdio", "^go%-sdk 1.8.0 stdio", "^python%-sdk 2.3.0 stdio", "^rmcp 3.11.0 stdio" } do
  add("change", server, "", OWN_PROCESS, true)
  add("subscription", server, "", OWN_PROCESS, true)
end
for _, check in ipairs { "structured", "elicitation", "elicitation_first", "sampling", "roots" } do add(check, " sse", "^java%-sdk", OLD, true) end
for _, client in ipairs { "^typescript", "^rmcp", "^java" } do add("progress", "", client, AT_ONCE, true) end
add("leave", " stdio", "^python%-sdk 1%.30%.0$", LATE, true)
add("subscription", "", "^go%-sdk 1%.8%.0$", EARLY, true)
add("log", "^rmcp 3.11.0 http", "", BESIDE, true)
add("subscription", "^rmcp 3.11.0 http", "", "open: in 2026-07-28 this server has no subscriptions/listen, and the gateway speaks that with it", true)

if cluster.in_front() then
  for _, client in ipairs { "^typescript%-sdk 2%.4%.0$", "^python%-sdk 2%.3%.0$", "^go%-sdk 1%.8%.0$", "^rmcp 3%.11%.0$" } do
    add("change", "^sdk 1.32.2", client, ONE_SESSION, true)
    add("subscription", "^sdk 1.32.2", client, ONE_SESSION, true)
  end
end

return list
