-- moonpool lock: shows the definitions of upstreams that are new, that have changed or that are gone since they were
-- approved, and approves them.

local characters = require "moonpool.runtime.characters"
local config_file = require "moonpool.config_file"
local probe_upstreams = require "moonpool.workbench.client.probe_upstreams"
local json = require "moonpool.json"
local line_diff = require "moonpool.workbench.format.line_diff"
local lock_file = require "moonpool.runtime.lock_file"
local stderr = require "moonpool.workbench.format.stderr"
local sorted = require "moonpool.runtime.sorted_keys"

-- -- what has changed ----------------------------------------------------------------------------------------------------

-- The lines of a value as indented JSON with sorted members; texts with line ends are split.
local function put_value(lines, value, indent, label, last)
  local is_list = debug.getmetatable(value) == json.array_mt
  if type(value) ~= "table" or next(value) == nil then
    lines[#lines + 1] = indent .. label .. characters.shown(json.encode(value)) .. last
    return
  end
  lines[#lines + 1] = indent .. label .. (is_list and "[" or "{")
  if is_list then
    for i, item in ipairs(value) do put_value(lines, item, indent .. "  ", "", i < #value and "," or "") end
  else
    local names = sorted(value)
    for i, name in ipairs(names) do
      put_value(lines, value[name], indent .. "  ", characters.shown(json.encode(name)) .. ": ", i < #names and "," or "")
    end
  end
  lines[#lines + 1] = indent .. (is_list and "]" or "}") .. last
end

local function lines_of(text)
  local lines = {}
  local value = text and json.decode(text)
  if value ~= nil and value ~= false then put_value(lines, value, "", "", "") end
  return lines
end

-- The differences between the approved entries of an upstream and its definitions now: a list of { is =
-- "new"|"changed"|"gone", entry, before }; all entries; notes; and how many lines get a hash of the new form
-- and stay the same otherwise. `is_check`: a line with a hash of the older form is no change if that hash is right.
local function changes_of(name, approved, definitions, today, is_check)
  local changes, entries, seen, notes, older = {}, {}, {}, {}, 0
  for _, one in ipairs(definitions) do
    local entry = { upstream = name, kind = one.kind, key = one.key, hash = one.hash, date = today, text = one.text }
    local id = lock_file.id(entry)
    local before = approved[id]
    seen[id] = true
    if one.why then
      notes[#notes + 1] = ("%s %s is withheld and cannot be approved: %s"):format(one.kind, characters.shown(one.key), one.why)
    else
      for _, doubt in ipairs(one.doubts or {}) do notes[#notes + 1] = ("%s %s: %s"):format(one.kind, characters.shown(one.key), doubt) end
      local is_same = before and before.hash == one.hash
      -- A line of an older version, whose hash does not cover `_meta`: the definition is the approved one, but its
      -- `_meta` was never shown to the operator.
      local is_older = before and not is_same and before.hash == one.old_hash
      if is_older and (before.text == one.text or one.kind == "server") then
        is_same, older = true, older + 1
      elseif is_older and is_check then
        is_same = true
        notes[#notes + 1] = ("%s %s: approved without its `_meta`, which moonpool lock shows"):format(one.kind, one.key)
      end
      if is_same then entry.date = before.date end
      entries[#entries + 1] = entry
      if not is_same and one.kind == "server" then
        if before then notes[#notes + 1] = "the server names another version of itself: " .. one.text end
      elseif not is_same then
        changes[#changes + 1] = { is = before and "changed" or "new", entry = entry, before = before }
      end
    end
  end
  for id, before in pairs(approved) do
    if before.upstream == name and not seen[id] and before.kind ~= "server" then changes[#changes + 1] = { is = "gone", entry = before } end
  end
  table.sort(changes, function(a, b) return lock_file.id(a.entry) < lock_file.id(b.entry) end)
  return changes, entries, notes, older
end

local function put_change(change)
  local entry = change.entry
  print(("%s %s %s: %s"):format(entry.upstream, entry.kind, characters.shown(entry.key), change.is))
  if change.is == "gone" then return end
  local before = change.before and change.before.text
  if change.before and not before then print "  (the file has only the hash of what was approved)" end
  for _, line in ipairs(line_diff(lines_of(before), lines_of(entry.text))) do print("  " .. line) end
end

-- -- the command ---------------------------------------------------------------------------------------------------------

-- True if the user at the terminal agrees.
local function agrees(name, count)
  io.stderr:write(("approve %s of %s? [y/N] "):format(count == 1 and "this change" or "these " .. count .. " changes", name))
  local text = io.read "l"
  return text ~= nil and (text:lower() == "y" or text:lower() == "yes")
end

local function plural(n, word) return n == 1 and "1 " .. word or n .. " " .. word .. "s" end

-- Approves the definitions of one upstream, or checks them. Returns true if none is left to approve, and true if `all`
-- was changed.
local function look_at(name, definitions, all, args)
  local changes, entries, notes, older = changes_of(name, all, definitions, os.date "!%Y-%m-%d", args.check)
  for _, change in ipairs(changes) do put_change(change) end
  for _, note in ipairs(notes) do stderr.note(name .. ": " .. characters.shown(note)) end
  local is_new = true
  for _, entry in pairs(all) do is_new = is_new and entry.upstream ~= name end
  if not changes[1] and not is_new and (older == 0 or args.check) then
    print(name .. ": nothing has changed")
    return true, false
  end
  if args.check then return false, false end
  if not args.yes and changes[1] and not agrees(name, #changes) then
    stderr.note(name .. ": not approved")
    return false, false
  end
  for id, entry in pairs(all) do
    if entry.upstream == name then all[id] = nil end
  end
  for _, entry in ipairs(entries) do all[lock_file.id(entry)] = entry end
  print(("%s: approved, %s in all"):format(name, plural(#entries, "line")))
  return true, true
end

-- The names of the command line, or all; nil and an exit code if one of them is not an upstream.
local function names_of(args, known)
  if not args[1] then return known end
  for _, name in ipairs(args) do
    local code = stderr.unknown_upstream(name, known)
    if code then return nil, code end
  end
  return { table.unpack(args) }
end

-- Removes the lines of upstreams that the configuration does not have.
local function drop_unknown(all, known)
  local by_name, is_changed = {}, false
  for _, name in ipairs(known) do by_name[name] = true end
  for id, entry in pairs(all) do
    if not by_name[entry.upstream] then
      all[id] = nil
      is_changed = true
      print(("%s %s %s: gone, as the configuration has no such upstream"):format(entry.upstream, entry.kind, characters.shown(entry.key)))
    end
  end
  return is_changed
end

return function(args)
  return probe_upstreams.ask(args.config or "moonpool.yaml", function(ask, found)
    local names, code = names_of(args, found.names)
    if not names then return code end
    if not names[1] and not found.lock then return stderr.wrong "the configuration has no upstreams" end
    local all, is_fine, is_changed = lock_file.read(found.lock), true, false
    for _, name in ipairs(names) do
      local got, why = ask { name = name, definitions = true }
      if not got then return nil, why end
      if got.note then
        is_fine = is_fine and not args[1]
        stderr.note(("%s: %s"):format(name, got.note))
      elseif got.what then
        is_fine = false
        stderr.note(("%s: %s%s"):format(name, characters.shown(got.what), got.hint and "\n  hint: " .. got.hint or ""))
      else
        local is_done, has_changed = look_at(name, got.definitions, all, args)
        is_fine, is_changed = is_fine and is_done, is_changed or has_changed
      end
    end
    if not args[1] and drop_unknown(all, found.names) then is_changed, is_fine = true, is_fine and not args.check end
    if is_changed and not args.check then
      local written, report = config_file.replace(found.lock, lock_file.text(all))
      if not written then return stderr.wrong((report:gsub("\n$", ""))) end
      print("wrote " .. found.lock)
    end
    return is_fine and 0 or 1
  end)
end
