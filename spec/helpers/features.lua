-- docs/reference/features.md: which feature, request, notification and capability is proven in which revision over
-- which transport, and by what. Proof is what the transcripts play, and what other specs say of themselves in a comment
-- near their top:
--   -- proves: resumption 2025-03-26..2025-11-25 http              a feature
--   -- proves: server notifications/cancelled 2026-07-28 stdio     a row of surface.lua: who, name, revisions, transports
--   -- cannot: WHAT; clients 2025-06-18; upstreams 2025-11-25: WHAT HAPPENS        what one revision cannot say to another
--   -- pairs: progress; clients 2024-11-05..; upstreams 2025-03-26.. http stdio     a feature of clients before upstreams
-- `./dev features` writes the page; `lua5.4 spec/helpers/features.lua` prints it.
local uv = require "luv"

local is_program = arg ~= nil and arg[0] == "spec/helpers/features.lua"
if is_program then package.path = "./?.lua;" .. package.path end
local transcript = require "spec.helpers.transcript"
local surface = require "spec.helpers.surface"

local features = { path = "docs/reference/features.md" }

local TRANSPORTS = { "sse", "http", "stdio" }
local SHOWN = { sse = "SSE", http = "HTTP", stdio = "stdio" }
local NEWEST = "2026-07-28"

-- The transports of a revision.
local function applies(revision, transport) return transport ~= "sse" or revision ~= NEWEST end

-- -- proofs: key -> revision -> transport -> { path = true } ----------------------------------------------------------------

local function note(proofs, key, revision, transport, path)
  local at = proofs
  for _, step in ipairs { key, revision, transport } do
    at[step] = at[step] or {}
    at = at[step]
  end
  at[path] = true
end

-- Lists the capabilities in a value: {"elicitation":{"form":{}}} -> "elicitation", "elicitation.form".
local function flatten(capabilities, found, prefix)
  for name, value in pairs(capabilities) do
    if value ~= false then
      found[prefix .. name] = true
      if type(value) == "table" and name ~= "extensions" then flatten(value, found, prefix .. name .. ".") end
    end
  end
  return found
end

local function note_play(proofs, it, play)
  local asked = {}
  local function say(kind, who, name) note(proofs, kind .. " " .. who .. " " .. name, play.revision, play.transport, it.path) end
  local function declare(who, capabilities)
    for name in pairs(flatten(capabilities, {}, "")) do say("capability", who, name) end
  end
  local function hear(message)
    local result = message.result
    if message.method then
      say(message.id ~= nil and "request" or "notification", "server", message.method)
      if message.method == "notifications/subscriptions/acknowledged" then say("request", "client", "subscriptions/listen") end
    elseif result and asked[message.id] then
      say("request", "client", asked[message.id])
      if result.capabilities then declare("server", result.capabilities) end
      for _, question in pairs(type(result.inputRequests) == "table" and result.inputRequests or {}) do
        if type(question) == "table" and question.method then say("request", "server", question.method) end
      end
    elseif message.error and message.error.code == -32601 and asked[message.id] then
      say("refused", "client", asked[message.id])
    end
  end
  declare("client", it.capabilities or {})
  for _, step in ipairs(transcript.steps(it, play.revision, play.transport)) do
    local message = step.message
    if message and step.does == "hear" then
      hear(message)
    elseif message and message.method and message.id ~= nil then
      asked[message.id] = message.method
      if message.method == "initialize" then declare("client", message.params.capabilities) end
    elseif message and message.method then
      say("notification", "client", message.method)
    end
  end
end

local function add_specs(folder, paths)
  local entries = assert(uv.fs_scandir(folder))
  for name, kind in uv.fs_scandir_next, entries do
    if kind == "directory" then
      add_specs(folder .. "/" .. name, paths)
    elseif name:find "_spec%.lua$" then
      paths[#paths + 1] = folder .. "/" .. name
    end
  end
end

local function specs()
  local paths = {}
  add_specs("spec/gateway", paths)
  add_specs("spec/unit", paths)
  table.sort(paths)
  return paths
end

-- Features that specs prove, in the order in which they are found, and the specs that prove rows.
local function note_specs(proofs, list)
  for _, path in ipairs(specs()) do
    for line in io.lines(path) do
      local what, condition = line:match "^%-%- proves: (.-) (%d%d%d%d%-[%d%-%.]* .*)$"
      if not what then what, condition = line:match "^%-%- proves: (.-) (%.%..*)$" end
      assert(what or not line:find "^%-%- proves:", path .. " does not say what it proves where: " .. line)
      if what then
        local who, name = what:match "^(client) (%S+)$"
        if not who then who, name = what:match "^(server) (%S+)$" end
        local keys = {}
        for _, row in ipairs(surface) do
          if row.who == who and row.name == name then keys[1] = row.kind .. " " .. who .. " " .. name end
        end
        assert(keys[1] or not who, path .. " proves a row that is not there: " .. what)
        if not who then
          keys[1] = "feature " .. what
          if not list[what] then table.insert(list, what) end
          list[what] = true
        end
        for _, revision in ipairs(transcript.revisions) do
          for _, transport in ipairs(TRANSPORTS) do
            if applies(revision, transport) and transcript.holds(condition, revision, transport) then
              note(proofs, keys[1], revision, transport, path)
            end
          end
        end
      end
    end
  end
end

-- -- the page ---------------------------------------------------------------------------------------------------------------

local function link(path) return ("[%s](../../%s)"):format(path:match "([^/]+)%.%w+$", path) end

-- Selects a small number of specs that prove all of a set of proofs by revision and transport: specs named like the
-- feature come first.
local function proven_by(by_revision, name)
  local covers, open = {}, {}
  for revision, by_transport in pairs(by_revision or {}) do
    for transport, set in pairs(by_transport) do
      open[revision .. transport] = true
      for path in pairs(set) do
        covers[path] = covers[path] or {}
        covers[path][revision .. transport] = true
      end
    end
  end
  local paths = {}
  for path in pairs(covers) do paths[#paths + 1] = path end
  table.sort(paths)
  local function worth(path)
    local count = 0
    for place in pairs(covers[path]) do count = count + (open[place] and 1 or 0) end
    return count > 0 and name and name:find(path:match "([^/]+)%.%w+$", 1, true) and count + 100 or count
  end
  local taken = {}
  while next(open) do
    local best
    for _, path in ipairs(paths) do
      if not best or worth(path) > worth(best) then best = path end
    end
    for place in pairs(covers[best]) do open[place] = nil end
    taken[#taken + 1] = link(best)
  end
  return table.concat(taken, ", ")
end

local function transports_in(by_transport, revision, on)
  local shown = {}
  for _, transport in ipairs(TRANSPORTS) do
    if by_transport and by_transport[transport] and (not on or transcript.holds(on, revision, transport)) then shown[#shown + 1] = SHOWN[transport] end
  end
  return table.concat(shown, " · ")
end

local function table_head(out, first)
  out[#out + 1] = "| " .. first .. " | " .. table.concat(transcript.revisions, " | ") .. " | proven by |"
  out[#out + 1] = "|---" .. ("|---"):rep(#transcript.revisions) .. "|---|"
end

-- Lists the features that specs prove for pairs: { what, proofs = revision of the upstream -> { clients = set,
-- transports = set, paths = set } }.
local function read_pairs()
  local list, by_name = {}, {}
  for _, path in ipairs(specs()) do
    for line in io.lines(path) do
      local what, clients, upstreams = line:match "^%-%- pairs: (.-); clients (.-); upstreams (.+)$"
      assert(what or not line:find "^%-%- pairs:", path .. " does not say which pairs it proves: " .. line)
      if what then
        local row = by_name[what] or { what = what, paths = {}, proofs = {} }
        if not by_name[what] then table.insert(list, row) end
        by_name[what] = row
        row.paths[path] = true
        for _, serves in ipairs(transcript.revisions) do
          for _, transport in ipairs(TRANSPORTS) do
            if applies(serves, transport) and transcript.holds(upstreams, serves, transport) then
              row.proofs[serves] = row.proofs[serves] or {}
              for _, asks in ipairs(transcript.revisions) do
                if transcript.holds(clients, asks, "http") then
                  row.proofs[serves][asks] = row.proofs[serves][asks] or {}
                  row.proofs[serves][asks][transport] = true
                end
              end
            end
          end
        end
      end
    end
  end
  return list
end

-- The cell for an upstream of a revision: the transports for clients of all revisions; or for each group of clients
-- with the same transports its own.
local function pairs_cell(by_client)
  if not by_client then return "" end
  local groups, order = {}, {}
  for _, asks in ipairs(transcript.revisions) do
    local shown = {}
    for _, transport in ipairs(TRANSPORTS) do
      if (by_client[asks] or {})[transport] then shown[#shown + 1] = SHOWN[transport] end
    end
    local text = table.concat(shown, " · ")
    if text ~= "" then
      if not groups[text] then order[#order + 1] = text end
      groups[text] = groups[text] or {}
      table.insert(groups[text], asks)
    end
  end
  for i, text in ipairs(order) do
    if #groups[text] < #transcript.revisions then order[i] = text .. ", for " .. table.concat(groups[text], ", ") end
  end
  return table.concat(order, "; ")
end

local function write_pairs(write, out)
  write ""
  write "## Clients before upstreams"
  write ""
  write "What a client gets through the gateway from an MCP server behind it. A column is the revision of the upstream; a cell has the upstream's"
  write "transports, for clients of all five revisions unless it names some."
  write ""
  table_head(out, "feature")
  for _, row in ipairs(read_pairs()) do
    local cells, paths = {}, {}
    for i, serves in ipairs(transcript.revisions) do cells[i] = pairs_cell(row.proofs[serves]) end
    for path in pairs(row.paths) do paths[#paths + 1] = link(path) end
    table.sort(paths)
    write(("| %s | %s | %s |"):format(row.what:sub(1, 1):upper() .. row.what:sub(2), table.concat(cells, " | "), table.concat(paths, ", ")))
  end
end

-- What one revision cannot say to another, as specs prove it: { what, clients, upstreams, instead, path }.
local function read_limits()
  local list = {}
  for _, path in ipairs(specs()) do
    for line in io.lines(path) do
      local what, clients, upstreams, instead = line:match "^%-%- cannot: (.-); clients (.-); upstreams (.-): (.+)$"
      assert(what or not line:find "^%-%- cannot:", path .. " does not say what cannot be said to whom: " .. line)
      if what then list[#list + 1] = { what = what, clients = clients, upstreams = upstreams, instead = instead, path = path } end
    end
  end
  return list
end

local function write_limits(write)
  write ""
  write "## What cannot be said"
  write ""
  write "Revisions differ in what they can say. What an upstream says and the client's revision has no words for is left out or said otherwise, and never"
  write "invented."
  write ""
  write "| what | client | upstream | what happens | proven by |"
  write "|---|---|---|---|---|"
  for _, row in ipairs(read_limits()) do
    write(("| %s | %s | %s | %s | %s |"):format(row.what:sub(1, 1):upper() .. row.what:sub(2), row.clients, row.upstreams, row.instead, link(row.path)))
  end
end

local function feature_row(out, title, by_revision)
  local cells = {}
  for i, revision in ipairs(transcript.revisions) do cells[i] = transports_in((by_revision or {})[revision]) end
  out[#out + 1] = ("| %s | %s | %s |"):format(title, table.concat(cells, " | "), proven_by(by_revision))
end

-- Merges rows of one kind and sender with the same name into one row of the page.
local function surface_rows(kind, who)
  local rows, by_name = {}, {}
  for _, row in ipairs(surface) do
    if row.kind == kind and row.who == who then
      local one = by_name[row.name]
      if not one then
        one = { name = row.name, key = kind .. " " .. who .. " " .. row.name, refused = "refused " .. who .. " " .. row.name }
        by_name[row.name] = one
        rows[#rows + 1] = one
      end
      table.insert(one, row)
    end
  end
  return rows
end

-- Appends missing and superfluous proofs to `problems`; returns the cell's text.
local function cell(proofs, one, revision, problems, reasons)
  local by_transport = (proofs[one.key] or {})[revision]
  for _, row in ipairs(one) do
    if transcript.holds(row.revisions, revision, "http") then
      local missing, proven = {}, {}
      for _, transport in ipairs(TRANSPORTS) do
        if applies(revision, transport) and (not row.on or transcript.holds(row.on, revision, transport)) then
          table.insert(by_transport and by_transport[transport] and proven or missing, transport)
        end
      end
      if row.reason and #proven > 0 then
        table.insert(problems, ("%s has a reason not to be proven in %s, and a proof"):format(one.key, revision))
      elseif not row.reason and #missing > 0 then
        table.insert(problems, ("%s is not proven in %s over %s"):format(one.key, revision, table.concat(missing, ", ")))
      end
      if row.reason and #missing > 0 then
        reasons[#reasons + 1] = row.reason ~= reasons[#reasons] and row.reason or nil
        return "not served"
      end
      return transports_in(by_transport, revision, row.on)
    end
  end
  return proofs[one.refused] and proofs[one.refused][revision] and "refused" or ""
end

local HEADS <const> = {
  { "request", "client", "Requests of a client" },
  { "request", "server", "Requests of the server", "In 2026-07-28 they are asked inside of a result, `inputRequests`." },
  { "notification", "client", "Notifications of a client" },
  { "notification", "server", "Notifications of the server" },
  { "capability", "server", "Capabilities of the server" },
  { "capability", "client", "Capabilities of a client" },
}

-- Returns the page's text, and a list of problems.
function features.build()
  local proofs, list, out, problems = {}, {}, {}, {}
  local function write(text) out[#out + 1] = text end
  local read = {}
  for i, name in ipairs(transcript.names()) do
    local it = transcript.read(name)
    read[i] = it
    for _, play in ipairs(transcript.plays(it)) do
      note_play(proofs, it, play)
      if not it.counts or transcript.holds(it.counts, play.revision, play.transport) then
        note(proofs, "feature " .. it.title, play.revision, play.transport, it.path)
      end
    end
  end
  note_specs(proofs, list)

  write "# What is proven, where"
  write ""
  write "Made by `./dev features` from the [transcripts](../../spec/transcripts/README.md), which are played against the real binary, and from what"
  write "other specs say they prove; a spec compares. SSE is HTTP+SSE, HTTP is Streamable HTTP (2024-11-05 does not define it, but may be spoken"
  write "over it), stdio is `moonpool stdio`."
  write "An empty cell: the revision has no such thing. *Refused*: it has not, and a transcript shows that it is refused as unknown."
  write ""
  write "## Features"
  write ""
  table_head(out, "feature")
  for _, it in ipairs(read) do feature_row(out, it.title, proofs["feature " .. it.title]) end
  for _, what in ipairs(list) do feature_row(out, what:sub(1, 1):upper() .. what:sub(2), proofs["feature " .. what]) end

  for _, head in ipairs(HEADS) do
    write ""
    write("## " .. head[3])
    write ""
    if head[4] then
      write(head[4])
      write ""
    end
    table_head(out, head[1])
    for _, one in ipairs(surface_rows(head[1], head[2])) do
      local cells, reasons = {}, {}
      for i, revision in ipairs(transcript.revisions) do cells[i] = cell(proofs, one, revision, problems, reasons) end
      local proven = proven_by(proofs[one.key], one.name)
      local told = proven .. (proven ~= "" and #reasons > 0 and "; " or "") .. table.concat(reasons, "; ")
      write(("| `%s` | %s | %s |"):format(one.name, table.concat(cells, " | "), told))
    end
  end
  if read_pairs()[1] then write_pairs(write, out) end
  if read_limits()[1] then write_limits(write) end
  write ""
  return table.concat(out, "\n"), problems
end

if is_program then
  local text, problems = features.build()
  io.write(text)
  io.stderr:write(table.concat(problems, "\n"), #problems > 0 and "\n" or "")
end

return features
