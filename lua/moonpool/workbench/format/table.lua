-- Lines with columns of the same width.
return function(rows)
  local widths, lines = {}, {}
  for _, row in ipairs(rows) do
    for i, text in ipairs(row) do widths[i] = math.max(widths[i] or 0, utf8.len(text) or #text) end
  end
  for n, row in ipairs(rows) do
    local cells = {}
    for i, text in ipairs(row) do cells[i] = text .. (" "):rep(widths[i] - (utf8.len(text) or #text)) end
    lines[n] = (table.concat(cells, "  "):gsub(" +$", ""))
  end
  return table.concat(lines, "\n") .. "\n"
end
