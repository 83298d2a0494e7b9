-- moonpool dashboard: the link that opens the dashboard of a running gateway, with a code that is valid once, for a
-- minute.

local json = require "moonpool.json"
local stderr = require "moonpool.workbench.format.stderr"
local wire = require "moonpool.wire"

local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

-- Opens the link in the user's browser, by a file that only this user can read: the arguments of programs are visible
-- to every user of the machine. Returns an error text, or nil.
local function open(link)
  local folder = os.getenv "XDG_RUNTIME_DIR" or ""
  if folder:sub(1, 1) ~= "/" then return "--open needs a folder that only you can read: set XDG_RUNTIME_DIR" end
  if not os.execute "command -v xdg-open >/dev/null 2>&1" then return "there is no xdg-open here: open the link yourself" end
  wire.mkdir(folder .. "/moonpool")
  local path = folder .. "/moonpool/dashboard.html"
  os.remove(path)      -- of an earlier link, which is used or too old
  local text = '<!doctype html><meta charset="utf-8"><title>moonpool</title><meta http-equiv="refresh" content="0;url=' .. link .. '">\n'
  local made, why = wire.create(path, text, true)
  if not made then return "cannot write " .. path .. ": " .. why end
  os.execute("xdg-open " .. quoted(path) .. " >/dev/null 2>&1 &")
end

--- Prints the link of the gateway's answer, and opens it if --open asks for that. `origin` is the gateway's address.
return function(body, args, origin)
  local answer = json.decode(body)
  local link = origin .. "/#code=" .. answer.code
  local wrong
  if args.open and not origin:find '["<>&]' then wrong = open(link) end
  io.stdout:write(link, "\n")
  if not wrong then return 0 end
  return stderr.wrong(wrong)
end
