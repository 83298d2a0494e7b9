-- Reads functions that string.dump has written: the bytes of Lua 5.4. A reader stands behind the header at first, where the
-- name of the source is.

local bytecode = {}
bytecode.__index = bytecode

local HEADER_BYTES <const> = 32

--- A reader of the bytes of a function.
function bytecode.reader(bytes) return setmetatable({ bytes = bytes, at = HEADER_BYTES + 1 }, bytecode) end

function bytecode:byte()
  self.at = self.at + 1
  return self.bytes:byte(self.at - 1)
end

function bytecode:size()
  local n = 0
  while true do
    local byte = self:byte()
    n = n << 7 | byte & 0x7f
    if byte & 0x80 ~= 0 then return n end
  end
end

function bytecode:skip(count) self.at = self.at + count end

--- Reads a text; nil for none.
function bytecode:text()
  local size = self:size()
  if size == 0 then return nil end
  self:skip(size - 1)
  return self.bytes:sub(self.at - size + 1, self.at - 1)
end

--- Reads an instruction.
function bytecode:word()
  self:skip(4)
  return (string.unpack("<I4", self.bytes, self.at - 4))
end

return bytecode
