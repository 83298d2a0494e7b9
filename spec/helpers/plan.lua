-- The plan of a folder of C: its boxes, its floors, and the arrows that run back up. `./dev plan` prints it;
-- spec/house/plan_spec.lua holds it.
--
-- A *box* is a .c file with its header, a header alone, or a folder. An *arrow* leads to the box whose function another
-- box calls, or whose header it includes for its types. *Arrows back* are the fewest whose removal leaves no circle;
-- *floors* are the boxes on the longest way along the others.
-- Below lua/ a box is a file or a folder, and an arrow is a `require`.
--
-- The boxes of a circle do not count as one floor: then a folder would have fewer floors, the more of its boxes are in
-- circles.
local lfs = require "lfs"

local plan = {}

-- for circles of up to this many boxes all orders are compared; for larger ones the best of TRIES is taken
local EXACT <const> = 12
local TRIES <const> = 400
-- the most orders of a circle with equally few arrows back among which the one with the fewest floors is chosen
local ORDERS <const> = 300

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

-- -- what a text of C declares and names ----------------------------------------------------------------------------------------------

-- The text with a blank for each comment, text and character.
local function bare(text)
  local out, i = {}, 1
  while true do
    local from = text:find("[/\"']", i)
    if not from then break end
    out[#out + 1] = text:sub(i, from - 1)
    local to, one = from, text:sub(from, from)
    if text:find("^/%*", from) then
      to = select(2, text:find("*/", from + 2, true)) or #text
    elseif text:find("^//", from) then
      to = (text:find("\n", from, true) or #text + 1) - 1
    elseif one == "/" then
      out[#out + 1] = one
    else
      repeat to = text:find("[\\" .. one .. "]", to + 1) or #text
        local is_escape = text:sub(to, to) == "\\"
        if is_escape then to = to + 1 end
      until not is_escape
    end
    out[#out + 1] = " "
    i = to + 1
  end
  return table.concat(out) .. text:sub(i)
end

-- The text outside braces, with {} in their place; and what is inside them or in a macro. A name of a function outside
-- braces declares it.
local function parts(text)
  local inner = {}
  text = ("\n" .. text):gsub("\\\n", " "):gsub("\n[ \t]*#[ \t]*define([^\n]*)", function(macro) inner[#inner + 1] = macro end):gsub("\n[ \t]*#[^\n]*", "")
  text = text:gsub("%b{}", function(body)
    inner[#inner + 1] = body
    return "{}"
  end)
  return text, table.concat(inner, " ")
end

-- -- boxes and arrows -----------------------------------------------------------------------------------------------------------------

-- Every file below a folder whose name matches: path -> { box, text }.
local function files_of(folder, pattern)
  local files = {}
  local function gather(path, box)
    if lfs.attributes(path, "mode") == "directory" then
      for name in lfs.dir(path) do
        if name:sub(1, 1) ~= "." then gather(path .. "/" .. name, box or lfs.attributes(path .. "/" .. name, "mode") == "directory" and name .. "/") end
      end
    elseif path:find(pattern) then
      files[path] = { box = box or path:match "([^/]+)%.[^.]+$", text = read(path) }
    end
  end
  gather(folder, nil)
  return files
end

-- Calls add(box, what) for what a file of C needs. `functions`: name -> the box that defines it.
local function each_need(path, file, files, folder, functions, add)
  for name in file.inner:gmatch "%f[%w_]mp_[%w_]+" do add(functions[name], name) end
  for included in file.text:gmatch '#%s*include%s*"([^"]+)"' do
    local place = files[path:match "^.*/" .. included] or files[folder .. "/" .. included] or files[(folder .. "/"):match "^.*core/" .. included]
    if place then add(place.box, included) end
  end
end

-- The same for a file of Lua.
local function each_require(file, files, add)
  for name in file.text:gsub("lazy%s*%(?\"", 'require "'):gmatch 'require%s*%(?%s*"(moonpool%.[%w_.-]+)"' do
    local path = "lua/" .. name:gsub("%.(%d)", "\1%1"):gsub("%.", "/"):gsub("\1", ".")
    local place = files[path .. ".lua"] or files[path .. "/init.lua"]
    if place then add(place.box, name) end
  end
end

--- The names of the boxes of a folder, sorted, and the arrows: box -> box -> what it needs of it.
function plan.read(folder)
  local is_lua = folder:find "^lua/" ~= nil
  local files, arrows, names, paths, functions = files_of(folder, is_lua and "%.lua$" or "%.[ch]$"), {}, {}, {}, {}
  for path, file in pairs(files) do
    paths[#paths + 1] = path
    if not is_lua then
      file.outer, file.inner = parts(bare(file.text))
      for name in file.outer:gmatch "%f[%w_](mp_[%w_]+)%s*%b()[%w_%s]*{}" do functions[name] = file.box end
    end
  end
  table.sort(paths)
  for _, path in ipairs(paths) do
    local file = files[path]
    arrows[file.box] = arrows[file.box] or {}
    local function add(box, what)
      if box and box ~= file.box then arrows[file.box][box] = arrows[file.box][box] or what end
    end
    if is_lua then each_require(file, files, add) else each_need(path, file, files, folder, functions, add) end
  end
  for name in pairs(arrows) do names[#names + 1] = name end
  table.sort(names)
  return names, arrows
end

-- -- circles, floors, arrows back -----------------------------------------------------------------------------------------------------

--- Tarjan's strongly connected components: lists of names, each after those that it leads to.
function plan.circles(names, arrows)
  local index, low, on_stack, stack, count, circles = {}, {}, {}, {}, 0, {}
  local function visit(name)
    count = count + 1
    index[name], low[name] = count, count
    stack[#stack + 1], on_stack[name] = name, true
    for _, to in ipairs(names) do
      if arrows[name][to] and not index[to] then
        visit(to)
        low[name] = math.min(low[name], low[to])
      elseif arrows[name][to] and on_stack[to] then
        low[name] = math.min(low[name], index[to])
      end
    end
    if low[name] ~= index[name] then return end
    local circle = {}
    repeat
      local member = table.remove(stack)
      on_stack[member], circle[#circle + 1] = nil, member
    until member == name
    table.sort(circle)
    circles[#circles + 1] = circle
  end
  for _, name in ipairs(names) do
    if not index[name] then visit(name) end
  end
  return circles
end

-- The orders of a circle's boxes, highest first, with the fewest arrows back: over all sets of boxes that can be on
-- top. ORDERS of them at most.
local function exact_orders(circle, arrows)
  local n, cost, last = #circle, { [0] = 0 }, {}
  local into = {}   -- for each box, the set of the boxes whose arrows lead to it, as bits
  for i, name in ipairs(circle) do
    into[i] = 0
    for j, other in ipairs(circle) do
      if arrows[other][name] then into[i] = into[i] | 1 << j - 1 end
    end
  end
  local function count(set)
    local number = 0
    while set ~= 0 do set, number = set & set - 1, number + 1 end
    return number
  end
  for set = 0, (1 << n) - 2 do
    for i = 1, n do
      local bit = 1 << i - 1
      if set & bit == 0 then
        -- adds the number of boxes below this one that have arrows up to it
        local sum = cost[set] + count(into[i] & ~(set | bit))
        if sum < (cost[set | bit] or math.huge) then cost[set | bit], last[set | bit] = sum, {} end
        if sum == cost[set | bit] then table.insert(last[set | bit], i) end
      end
    end
  end
  local orders = {}
  local function add(set, below)
    if set == 0 then orders[#orders + 1] = below end
    for _, i in ipairs(set ~= 0 and last[set] or {}) do
      if #orders < ORDERS then add(set & ~(1 << i - 1), { circle[i], table.unpack(below) }) end
    end
  end
  add((1 << n) - 1, {})
  return orders
end

-- Puts each box where it has the fewest arrows back, until none can be put better.
local function improve(order, arrows)
  local total, is_better = 0, true
  while is_better do
    is_better = false
    for _, name in ipairs { table.unpack(order) } do
      local at
      for i, other in ipairs(order) do at = other == name and i or at end
      table.remove(order, at)
      local sum, own, best, place = 0, 0, math.huge, at
      for i = 0, #order do
        local before = order[i]
        if i == 0 then
          for _, other in ipairs(order) do sum = sum + (arrows[other][name] and 1 or 0) end
        else
          sum = sum - (arrows[before][name] and 1 or 0) + (arrows[name][before] and 1 or 0)
        end
        if sum < best then best, place = sum, i + 1 end
        if i + 1 == at then own = sum end
      end
      if best == own then place = at end
      is_better = is_better or best < own
      table.insert(order, place, name)
    end
  end
  for i, name in ipairs(order) do
    for j = 1, i - 1 do total = total + (arrows[name][order[j]] and 1 or 0) end
  end
  return total
end

-- The number of boxes on the longest way down an order.
local function height(order, arrows)
  local floor, highest = {}, 0
  for i = #order, 1, -1 do
    local below = 0
    for j = i + 1, #order do
      if arrows[order[i]][order[j]] then below = math.max(below, floor[j]) end
    end
    floor[i] = below + 1
    highest = math.max(highest, floor[i])
  end
  return highest
end

-- An order of a circle: what nothing left leads to is on top of the rest, what leads to nothing left is at the bottom,
-- and if all are in circles, any one that random(n) chooses is on top.
local function greedy_order(circle, arrows, random)
  local left, top, bottom = { table.unpack(circle) }, {}, {}
  local function has_none(name, is_into)
    for _, other in ipairs(left) do
      if is_into and arrows[other][name] or not is_into and arrows[name][other] then return false end
    end
    return true
  end
  while left[1] do
    local at
    for i, name in ipairs(left) do
      if has_none(name, true) then at = i break end
      if has_none(name, false) then
        table.insert(bottom, 1, name)
        table.remove(left, i)
        goto continue
      end
    end
    top[#top + 1] = table.remove(left, at or random(#left))
    ::continue::
  end
  return table.move(bottom, 1, #bottom, #top + 1, top)
end

-- The best of many greedy orders that are improved, of equal ones the lowest. Each run of the program takes the same
-- orders.
local function good_order(circle, arrows)
  local best, fewest, lowest = nil, math.huge, math.huge
  local state = 1
  local function random(n)
    state = state * 1103515245 + 12345 & 0x7fffffff
    return (state >> 8) % n + 1
  end
  for _ = 1, TRIES do
    local order = greedy_order(circle, arrows, random)
    local total = improve(order, arrows)
    local floors = total <= fewest and height(order, arrows)
    if total < fewest or total == fewest and floors < lowest then best, fewest, lowest = order, total, floors end
  end
  return best
end

--- The arrows without those of a list.
function plan.without(arrows, list)
  local rest = {}
  for from, all in pairs(arrows) do
    rest[from] = {}
    for to, what in pairs(all) do rest[from][to] = what end
  end
  for _, arrow in ipairs(list) do rest[arrow[1]][arrow[2]] = nil end
  return rest
end

--- The floor of each box, 1 at the bottom, and the highest one. The arrows have no circle.
function plan.floors(names, arrows)
  local floor, highest = {}, 0
  local function of(name)
    if not floor[name] then
      local below = 0
      for to in pairs(arrows[name]) do below = math.max(below, of(to)) end
      floor[name] = below + 1
      highest = math.max(highest, floor[name])
    end
    return floor[name]
  end
  for _, name in ipairs(names) do of(name) end
  return floor, highest
end

-- The arrows of a circle that lead up in an order, and their names as one text.
local function back_of(order, arrows)
  local back, key = {}, {}
  for i, name in ipairs(order) do
    for j = 1, i - 1 do
      if arrows[name][order[j]] then back[#back + 1] = { name, order[j], arrows[name][order[j]] } end
    end
  end
  for i, arrow in ipairs(back) do key[i] = arrow[1] .. " " .. arrow[2] end
  table.sort(key)
  return back, table.concat(key, "\n")
end

-- The choices for a circle: lists of arrows back, all of the same length; and whether that is certainly the least.
local function choices_of(circle, arrows)
  local is_exact, list, known = #circle <= EXACT, {}, {}
  for _, order in ipairs(is_exact and exact_orders(circle, arrows) or { good_order(circle, arrows) }) do
    local back, key = back_of(order, arrows)
    if not known[key] then list[#list + 1], known[key] = back, true end
  end
  return list, is_exact
end

--- The arrows back: lists { from, to, what }, sorted; and whether their number is certainly the least. Of equal choices
--- the one with the fewest floors.
function plan.back(names, arrows)
  local all, chosen, is_exact = {}, {}, true
  for i, circle in ipairs(plan.circles(names, arrows)) do
    local is_least
    all[i], is_least = choices_of(circle, arrows)
    chosen[i], is_exact = all[i][1], is_exact and is_least
  end
  local function gathered()
    local back = {}
    for _, list in ipairs(chosen) do table.move(list, 1, #list, #back + 1, back) end
    return back
  end
  for i, choices in ipairs(all) do
    local best, fewest
    for _, choice in ipairs(#choices > 1 and choices or {}) do
      chosen[i] = choice
      local _, floors = plan.floors(names, plan.without(arrows, gathered()))
      if not fewest or floors < fewest then best, fewest = choice, floors end
    end
    chosen[i] = best or chosen[i]
  end
  local back = gathered()
  table.sort(back, function(a, b) return a[1] < b[1] or a[1] == b[1] and a[2] < b[2] end)
  return back, is_exact
end

--- What is measured of a folder: { boxes, floors, back, is_exact }.
function plan.measure(folder)
  local names, arrows = plan.read(folder)
  local back, is_exact = plan.back(names, arrows)
  local _, floors = plan.floors(names, plan.without(arrows, back))
  return { boxes = #names, floors = floors, back = back, is_exact = is_exact }
end

--- What is measured of a folder, as a line.
function plan.line(folder)
  local measured = plan.measure(folder)
  return ("%-28s %5d %6d %6d%s"):format(folder, measured.boxes, measured.floors, #measured.back, measured.is_exact and "" or " (at most)"), measured
end

-- True if there is a file in a folder or below it. Git leaves empty folders behind when files move.
local function has_files(folder)
  for name in lfs.dir(folder) do
    local path = folder .. "/" .. name
    if name:sub(1, 1) ~= "." and (lfs.attributes(path, "mode") ~= "directory" or has_files(path)) then return true end
  end
  return false
end

--- The folders of a folder that are not empty, sorted.
function plan.folders(folder)
  local folders = {}
  for name in lfs.dir(folder) do
    local path = folder .. "/" .. name
    if name:sub(1, 1) ~= "." and lfs.attributes(path, "mode") == "directory" and has_files(path) then folders[#folders + 1] = path end
  end
  table.sort(folders)
  return folders
end

return plan
