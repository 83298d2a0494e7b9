-- The lines of a gateway's audit, for specs that compare two gateways.
local audit_lines = {}

-- What differs between two runs, and what stands in its place.
local DIFFERENT <const> = {
  { '"time":"[^"]+"', '"time":1' }, { '"id":"%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x"', '"id":1', 1 }, { '"ms":[%d.]+', '"ms":1' },
  { '"session":"%x%x%x%x%x%x%x%x"', '"session":1' }, { "internal error %x%x%x%x", "internal error 1" }, { '"channel":"session:%x+', '"channel":"session:1' },
}

--- The lines about methods whose names begin with `method`, by default all of tools, without what differs between two
--- runs.
function audit_lines.of(g, method)
  local lines = {}
  for line in io.lines(g.dir .. "/audit.jsonl", "L") do
    if line:sub(-1) == "\n" and line:find('"method":"' .. (method or "tools/"), 1, true) then
      for _, row in ipairs(DIFFERENT) do line = line:gsub(row[1], row[2], row[3]) end
      lines[#lines + 1] = line
    end
  end
  return lines
end

return audit_lines
