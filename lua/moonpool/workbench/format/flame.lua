-- A flame graph: a picture of stacks as one SVG that needs nothing else. Each box is a frame, as wide as its part of
-- the samples; above it are the frames that it called.

local sorted = require "moonpool.runtime.sorted_keys"

local WIDTH <const> = 1200 -- all sizes in px
local MARGIN <const> = 10
local ROW <const> = 18
local HEAD <const> = 58
local LETTER <const> = 6.7 -- the width of one letter
local LEAST <const> = 0.3 -- boxes that are narrower are left out

local STYLE <const> = [[
text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#1a1a1a}
.page{fill:#fff}.title{font-size:15px;font-weight:600}.note{fill:#555}
rect{stroke:#fff;stroke-width:.6}
.all{fill:#d5d9e0}.phase{fill:#b9c8e8}.call{fill:#cbb8e6}.own{fill:#b5d8bd}
.s0{fill:#f6c177}.s1{fill:#f2a65e}.s2{fill:#f4b183}.s3{fill:#ef9a6b}.s4{fill:#f7cf8b}
@media (prefers-color-scheme:dark){.page{fill:#16181d}rect{stroke:#16181d}.title{fill:#eee}.note{fill:#aaa}}
]]

local MARKS <const> = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }

local function safe(text) return (text:gsub("[%c\127]", "?"):gsub('[&<>"]', MARKS)) end

-- The text as far as it fits a box of this width; nil if that is too little to be of use. The end of a path says more
-- than its beginning.
local function fitting(text, width)
  local most = (width - 6) // LETTER
  local count = utf8.len(text)
  if not count or most < 3 then return nil end
  if count <= most then return text end
  return "…" .. text:sub(utf8.offset(text, math.tointeger(most - 1) * -1))
end

-- The class of a frame, which decides on its colour. Frames of the same file have the same one.
local function class_of(name, depth)
  if depth < 3 then return ({ [0] = "all", "phase", "call" })[depth] end
  if name:find "^lua/moonpool/" then return "own" end
  local sum = 0
  for byte in name:gsub(":%d+$", ""):gmatch "." do sum = (sum * 31 + byte:byte()) % 65521 end
  return "s" .. sum % 5
end

-- The tree of the stacks: { count =, children = { [name] = node } }, and its depth.
local function tree_of(stacks)
  local root, deepest = { count = 0, children = {} }, 0
  for _, stack in ipairs(stacks) do
    local node = root
    root.count = root.count + stack.count
    for _, name in ipairs(stack.frames) do
      local child = node.children[name] or { count = 0, children = {} }
      node.children[name] = child
      child.count = child.count + stack.count
      node = child
    end
    deepest = math.max(deepest, #stack.frames)
  end
  return root, deepest
end

--- The SVG of stacks, { frames =, count = }. `unit` is the counted unit, `note` a line below the title.
return function(stacks, unit, note)
  local root, deepest = tree_of(stacks)
  local height = HEAD + (deepest + 1) * ROW + MARGIN
  local out = {}
  local function put(format, ...) out[#out + 1] = format:format(...) end
  put('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">\n', WIDTH, height, WIDTH, height)
  put('<title>Flame graph: %s</title>\n<style>%s</style>\n<rect class="page" width="100%%" height="100%%"/>\n', safe(note), STYLE)
  put('<text class="title" x="%d" y="26">moonpool profile</text>\n<text class="note" x="%d" y="44">%s</text>\n', MARGIN, MARGIN, safe(note))
  local scale = root.count > 0 and (WIDTH - 2 * MARGIN) / root.count or 0
  local function draw(node, name, depth, at)
    local width = node.count * scale
    if width < LEAST then return end
    local x, y = MARGIN + at * scale, height - MARGIN - (depth + 1) * ROW
    put('<g><title>%s: %d %s, %.1f %%</title><rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d" rx="1.5"/>', safe(name), node.count, unit,
      100 * node.count / root.count, class_of(name, depth), x, y, width, ROW - 1)
    local text = fitting(name, width)
    if text then put('<text x="%.1f" y="%d">%s</text>', x + 3, y + 12, safe(text)) end
    put "</g>\n"
    for _, child in ipairs(sorted(node.children)) do
      draw(node.children[child], child, depth + 1, at)
      at = at + node.children[child].count
    end
  end
  if root.count > 0 then draw(root, "all", 0, 0) end
  out[#out + 1] = "</svg>\n"
  return table.concat(out)
end
