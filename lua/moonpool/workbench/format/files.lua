-- Whole files that commands read and write.

local files = {}

--- The text of a file; or nil, why. `most`: limit of its bytes, a multiple of 1 MiB (optional).
function files.read(path, most)
  local file, why = io.open(path, "rb")
  if not file then return nil, why end
  local text = file:read(most and most + 1 or "a")
  file:close()
  if most and text and #text > most then return nil, ("%s has more than %d MiB"):format(path, most >> 20) end
  return text or ""
end

--- Writes a file by a mode of io.open: true; or nil, why.
function files.write(path, text, mode)
  local file, why = io.open(path, mode)
  if not file then return nil, why end
  local fine
  fine, why = file:write(text)
  local is_closed, later = file:close()                     -- what is still in a buffer is written now
  if fine and is_closed then return true end
  return nil, path .. ": " .. tostring(why or later)
end

return files
