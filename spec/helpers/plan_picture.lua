-- Pictures of the plans of core/ and lua/moonpool, as SVG. `./dev plan pictures` writes them, from includes, calls and
-- `require`. A box is a folder, with the folders inside it; it needs what is below it. An arrow that follows from
-- others is left out.
local lfs = require "lfs"
local plan = dofile "spec/helpers/plan.lua"

local pictures = {
  { path = "docs/dev/core.svg", folder = "core", title = "the modules of core/" },
  { path = "docs/dev/lua.svg", folder = "lua/moonpool", title = "the folders of lua/moonpool" },
}

local CHARACTER <const>, SMALL <const> = 8, 5.6    -- width of a character of a name, and of a line below it
local ROW <const>, GAP <const>, EDGE <const> = 70, 26, 16
local MOST_IN_LINE <const> = 42                    -- characters of a line of inner folders

-- Removes arrows that follow from others. The arrows have no circle.
local function reduced(names, arrows)
  local reach = {}
  local function below(name)
    if reach[name] then return reach[name] end
    reach[name] = {}
    for to in pairs(arrows[name]) do
      reach[name][to] = true
      for far in pairs(below(to)) do reach[name][far] = true end
    end
    return reach[name]
  end
  local kept = {}
  for _, from in ipairs(names) do
    kept[from] = {}
    for to in pairs(arrows[from]) do
      local follows = false
      for by in pairs(arrows[from]) do follows = follows or by ~= to and below(by)[to] end
      if not follows then kept[from][to] = true end
    end
  end
  return kept
end

-- The lines below the name of a box: its folders.
local function lines_of(path)
  local inner = {}
  if lfs.attributes(path, "mode") == "directory" then
    for _, folder in ipairs(plan.folders(path)) do inner[#inner + 1] = folder:match "[^/]+$" end
  end
  local lines = {}
  for _, name in ipairs(inner) do
    local last = lines[#lines]
    if last and #last + #name < MOST_IN_LINE then lines[#lines] = last .. " · " .. name else lines[#lines + 1] = name end
  end
  return lines
end

-- Nodes by floor: boxes, and a point of no width where an arrow passes a floor. Each node has `down`, the nodes that it
-- leads to on the next floor.
local function rows_of(names, arrows, folder)
  local floor, highest = plan.floors(names, arrows)
  local rows, nodes = {}, {}
  for i = 1, highest do rows[i] = {} end
  local function put(node, at)
    node.down, node.up, node.floor = {}, {}, at
    table.insert(rows[at], node)
    return node
  end
  for _, name in ipairs(names) do
    local lines = lines_of(folder .. "/" .. name:gsub("/$", ""))
    local width = #name * CHARACTER
    for _, line in ipairs(lines) do width = math.max(width, utf8.len(line) * SMALL) end
    nodes[name] = put({ name = name:gsub("/$", ""), lines = lines, width = width + 20 }, floor[name])
  end
  local chains = {}
  for _, from in ipairs(names) do
    for _, to in ipairs(names) do
      if arrows[from][to] then
        local chain, last = { nodes[from] }, nodes[from]
        for at = floor[from] - 1, floor[to], -1 do
          local node = at == floor[to] and nodes[to] or put({ width = 8 }, at)
          table.insert(last.down, node)
          table.insert(node.up, last)
          chain[#chain + 1], last = node, node
        end
        chains[#chains + 1] = chain
      end
    end
  end
  return rows, chains
end

-- Orders each floor by where its neighbours are, down and up in turns, and sets `x`, the middle of each node.
local function arrange(rows)
  local function place()
    local widest = 0
    for _, row in ipairs(rows) do
      local x = 0
      for _, node in ipairs(row) do
        node.x = x + node.width / 2
        x = x + node.width + GAP
      end
      row.width = x - GAP
      widest = math.max(widest, row.width)
    end
    for _, row in ipairs(rows) do
      for _, node in ipairs(row) do node.x = node.x + (widest - row.width) / 2 end
    end
    return widest
  end
  local widest = place()
  for turn = 1, 24 do
    local is_down = turn % 2 == 1
    for i = is_down and #rows or 1, is_down and 1 or #rows, is_down and -1 or 1 do
      for index, node in ipairs(rows[i]) do
        local near, sum = is_down and node.up or node.down, 0
        for _, other in ipairs(near) do sum = sum + other.x end
        node.wish, node.index = near[1] and sum / #near or node.x, index
      end
      table.sort(rows[i], function(a, b) return a.wish < b.wish or a.wish == b.wish and a.index < b.index end)
      widest = place()
    end
  end
  return widest
end

-- Moves each node of a row towards its neighbours, as far as the nodes beside it let it.
local function settle(rows, widest)
  for turn = 1, 20 do
    for i = 1, #rows do
      local row = rows[turn % 2 == 1 and i or #rows + 1 - i]
      for at, node in ipairs(row) do
        local sum, count = 0, 0
        for _, list in ipairs { node.up, node.down } do
          for _, other in ipairs(list) do sum, count = sum + other.x, count + 1 end
        end
        local before, after = row[at - 1], row[at + 1]
        local least = before and before.x + (before.width + node.width) / 2 + GAP or node.width / 2
        local most = after and after.x - (after.width + node.width) / 2 - GAP or widest - node.width / 2
        if count > 0 then node.x = math.max(least, math.min(most, sum / count)) end
      end
    end
  end
end

local function number(value) return ("%d"):format(math.floor(value + 0.5)) end

-- One arrow: a curve through the nodes of its chain.
local function arrow_of(chain, y)
  local first = chain[1]
  local parts = { ("M%s %s"):format(number(first.x), number(y[first].bottom)) }
  for i = 2, #chain do
    local a, b = chain[i - 1], chain[i]
    local from, to = y[a].bottom, y[b].top - (i == #chain and 5 or 0)
    local middle = (from + to) / 2
    parts[#parts + 1] = ("C%s %s %s %s %s %s"):format(number(a.x), number(middle), number(b.x), number(middle), number(b.x), number(to))
    if i < #chain then parts[#parts + 1] = ("L%s %s"):format(number(b.x), number(y[b].bottom)) end
  end
  return ('<path d="%s" marker-end="url(#tip)"/>'):format(table.concat(parts, " "))
end

local function svg_of(picture)
  local names, arrows = plan.read(picture.folder)
  local back = plan.back(names, arrows)
  local rows, chains = rows_of(names, reduced(names, plan.without(arrows, back)), picture.folder)
  local widest = arrange(rows)
  settle(rows, widest)
  local width, y, top, out = widest + 2 * EDGE, {}, EDGE, {}
  for i = #rows, 1, -1 do
    local height = 0
    for _, node in ipairs(rows[i]) do height = math.max(height, node.lines and 28 + 14 * #node.lines or 0) end
    for _, node in ipairs(rows[i]) do
      node.x = node.x + EDGE
      local own = node.lines and 28 + 14 * #node.lines or height
      y[node] = { top = top + (height - own) / 2, bottom = top + (height + own) / 2 }
    end
    top = top + height + ROW - 28
  end
  for _, chain in ipairs(chains) do out[#out + 1] = arrow_of(chain, y) end
  local drawn = table.concat(out, "\n")
  out = {}
  for i = #rows, 1, -1 do
    for _, node in ipairs(rows[i]) do
      if node.lines then
        local at = y[node]
        out[#out + 1] = ('<rect x="%s" y="%s" width="%s" height="%s" rx="4"/>'):format(number(node.x - node.width / 2), number(at.top), number(node.width),
          number(at.bottom - at.top))
        out[#out + 1] = ('<text x="%s" y="%s" class="name">%s</text>'):format(number(node.x), number(at.top + 19), node.name)
        for line, text in ipairs(node.lines) do
          out[#out + 1] = ('<text x="%s" y="%s">%s</text>'):format(number(node.x), number(at.top + 19 + 14 * line), text)
        end
      end
    end
  end
  return ([[
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s" font-family="sans-serif" font-size="11" text-anchor="middle">
<title>%s</title>
<style>rect{fill:#fff;stroke:#456}path{fill:none;stroke:#89a}text{fill:#567}.name{fill:#123;font-size:14px;font-weight:bold}</style>
<marker id="tip" viewBox="0 0 8 8" refX="3" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" style="fill:#89a"/></marker>
<rect width="100%%" height="100%%" style="fill:#f6f8fa;stroke:none"/>
%s
%s
</svg>
]]):format(number(width), number(top - ROW + 28 + EDGE + 10), number(width), number(top - ROW + 28 + EDGE + 10), picture.title, drawn, table.concat(out, "\n"))
end

for _, picture in ipairs(pictures) do
  function picture.make() return svg_of(picture) end

  function picture.write()
    local file <close> = assert(io.open(picture.path, "wb"))
    file:write(picture.make())
  end
end

return pictures
